"""What a planned step gains by devices that work at the same time, for programs that run them in turn."""

from __future__ import annotations

import numpy as np

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate


def in_turn(problem: Problem, placement: Placement, program: str) -> str | None:
    """One line where the planned step counts on an overlap of devices that a program does not make.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> in_turn(problem, gp.place(problem, "gpu"), "it")
    >>> in_turn(problem, gp.place(problem, "heft"), "it").split(" of ")[0]
    'it runs one device after another, and 3.581 ms'
    """
    (result,) = simulate(problem, [placement], timeline=True)
    if result.timeline is None or result.step_time_ns is None:
        return None
    start, end = result.timeline.start_ns, result.timeline.end_ns
    apart = sum(_covered(start[on], end[on]) for on in (placement.device == device for device in range(problem.num_devices)))
    overlap = apart - _covered(start, end)
    planned, gained, least = (f"{ns / 1e6:,.3f} ms" for ns in (result.step_time_ns, overlap, apart))
    told = f"{program} runs one device after another, and {gained} of the planned {planned} overlap: its step takes {least} at least"
    return told if overlap else None


def _covered(start_ns: np.ndarray, end_ns: np.ndarray) -> int:
    """The length of the union of intervals."""
    if not len(start_ns):
        return 0
    order = np.argsort(start_ns, kind="stable")
    reached = np.concatenate([[0], np.maximum.accumulate(end_ns[order])[:-1]])
    return int(np.maximum(0, end_ns[order] - np.maximum(start_ns[order], reached)).sum())
