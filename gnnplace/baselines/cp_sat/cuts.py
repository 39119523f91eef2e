"""Lower bounds as constraints of the program. Every simulated step of a feasible placement satisfies them.

Heads and tails bound the start and end of each op on each device. If all ops of a set start at a or later and have at
least b of the step left after them, those on one device take at most (step - a - b) times its streams.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.cp_sat.model import ConstraintProgram
from gnnplace.problems import MAX_STEP_NS
from gnnplace.result import LeastTimes

MOST_WINDOWS = 6  # values of a, and as many of b


def add_cuts(program: ConstraintProgram, least: LeastTimes) -> None:
    """Adds the largest lower bound, every head and tail, and windows of work for each device."""
    model = program.model
    model.add(program.step >= program.units(least.step_ns))
    head, tail = least.head_ns, least.tail_ns
    for op, row in enumerate(program.stands):
        before: Any = 0
        after: Any = 0
        for device, on in enumerate(row):
            if max(head[op, device], tail[op, device]) >= MAX_STEP_NS:
                model.add(on == 0)
            else:
                before += program.units(head[op, device]) * on
                after += program.units(tail[op, device]) * on
        model.add(program.start[op] >= before)
        model.add(program.step >= program.end[op] + after)
    _add_windows(program, head.min(axis=1), tail.min(axis=1))


def _add_windows(program: ConstraintProgram, head: Int64[np.ndarray, " ops"], tail: Int64[np.ndarray, " ops"]) -> None:
    problem = program.problem
    for a, b in product(_some(head), _some(tail)):
        inside = np.flatnonzero((head >= a) & (tail >= b)).tolist()
        for device, streams in enumerate(problem.cluster.streams.tolist()):
            work = sum(program.units(problem.time_ns[op, device]) * program.stands[op][device] for op in inside)
            if len(inside) > 1:
                program.model.add(streams * (program.step - program.units(a) - program.units(b)) >= work)


def _some(values: Int64[np.ndarray, " ops"]) -> list[int]:
    """A few of the values, evenly spaced by rank, with the least one."""
    distinct = np.unique(values[values < MAX_STEP_NS])
    if len(distinct) > MOST_WINDOWS:
        distinct = distinct[np.linspace(0, len(distinct) - 1, MOST_WINDOWS).astype(np.int64)]
    return distinct.tolist()
