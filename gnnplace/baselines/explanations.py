"""Why planners are slower than one device alone, on those problems on which they are: one line for each that can be.

The planners without a line begin with the single devices, so they can't be.
"""

from __future__ import annotations

from collections.abc import Mapping

SINGLE = ("cpu", "gpu")
EXPLANATIONS: Mapping[str, str] = {
    "cpu": "all on the CPU, by design: accelerators compute several times faster",
    "gpu": "all on one accelerator, by design, where a CPU is faster",
    "expert": "layers by hand, one run for each accelerator: they follow one another, so a slower accelerator or link just adds its time",
    "pipeline": "accelerators alone, by design, where a CPU is faster",
    "scotch": "even work, few bytes between devices, blind to order in time: mostly one of them, the CPU too, or a link works",
    "min-cut": "even work, few bytes between accelerators, blind to order in time: mostly one of them, fast or slow, or a link works",
    "metis": "even work, little time in transfers, blind to order in time: mostly one accelerator, fast or slow, or a link works",
    "heft": "greedy: a unit goes where its first op and its work would end first, whatever transfers its results will need",
    "peft": "looks ahead as if devices and links were free then: transfers that pile up are not foreseen",
    "critical-path-first": "greedy off the critical path, whatever transfers a unit's results will need",
    "m-topo": "even memory instead of time: a slow accelerator gets as much as a fast one, and what crosses the cuts is not asked for",
    "m-etf": "by the earliest start instead of end: slow accelerators that are idle take ops, and transfers that follow are not foreseen",
    "m-sct": "as m-etf: an idle slow accelerator starts first, and favourite children save no other transfers",
    "random": "drawn evenly, the best of 64: slow accelerators get as much as fast ones, and half or more of what units exchange is sent",
}  # fmt: skip


def slower_than_one_device(times_ns: Mapping[str, int | None]) -> dict[str, str]:
    """The planners whose time is longer than that of the best single device, and why; `times_ns` has None where nothing is feasible."""
    alone = [time for name in SINGLE if (time := times_ns.get(name)) is not None]
    slower = [name for name, time in times_ns.items() if time is not None and alone and time > min(alone)]
    return {name: EXPLANATIONS.get(name, "not explained yet") for name in slower}
