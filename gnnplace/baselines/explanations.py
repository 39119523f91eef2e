"""Why a planner may be slower than a single device: one line for each planner that can be.

Planners without a line start from the single devices, so they can't be slower.
"""

from __future__ import annotations

from collections.abc import Mapping

SINGLE = ("cpu", "gpu")
EXPLANATIONS: Mapping[str, str] = {
    "cpu": "Everything runs on the CPU, which is several times slower than an accelerator.",
    "gpu": "Everything runs on one accelerator, although a CPU is faster here.",
    "expert": "Each accelerator runs some layers, one after another, so a slow accelerator or link only adds time.",
    "pipeline": "Only accelerators are used, although a CPU is faster here.",
    "scotch": "The cut balances work and saves bytes, but ignores order: mostly one device or link is busy while "
              "the others wait.",
    "min-cut": "The cut balances work and saves bytes, but ignores order: mostly one accelerator or link is busy.",
    "metis": "The cut balances work and saves transfer time, but ignores order: mostly one accelerator or link is "
             "busy.",
    "heft": "HEFT is greedy: a unit goes where it would finish first, whatever transfers its results will need.",
    "peft": "PEFT looks ahead as if devices and links were idle, so it does not foresee queues of transfers.",
    "critical-path-first": "Units off the critical path are placed greedily, whatever transfers their results will "
                           "need.",
    "m-topo": "m-TOPO balances memory instead of time: a slow accelerator gets as much as a fast one, and transfers "
              "do not count.",
    "m-etf": "m-ETF takes the earliest start, not the earliest end: idle slow accelerators get ops, and later "
             "transfers are not foreseen.",
    "m-sct": "m-SCT keeps a favourite child with its parent; here that saves no transfers.",
    "random": "Slow accelerators get as much work as fast ones, and half of the edges or more cross devices.",
}  # fmt: skip


def slower_than_one_device(times_ns: Mapping[str, int | None]) -> dict[str, str]:
    """The reason for each planner that is slower than the best single device.

    `times_ns` is None for an infeasible placement.
    """
    alone = [time for name in SINGLE if (time := times_ns.get(name)) is not None]
    slower = [name for name, time in times_ns.items() if time is not None and alone and time > min(alone)]
    return {name: EXPLANATIONS.get(name, "Not explained yet.") for name in slower}
