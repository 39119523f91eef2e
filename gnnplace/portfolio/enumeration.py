"""Every legal placement of a problem that has few: the fastest is an
optimum under its schedule, and nothing else need be asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import prod

import numpy as np

from gnnplace.baselines.fastest import fastest
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import allowed, expand, units

BATCH = 1024  # placements evaluated together


def placements(problem: Problem) -> float:
    """How many legal placements there are. Raises ValueError where a colocation group is allowed on no device."""
    # infinite where a float can't count them
    return prod(allowed(problem, units(problem.graph, "ops")).sum(axis=1).tolist(), start=1.0)


def every_placement(problem: Problem, schedule: Schedule = "critical-path") -> Iterator[Placement]:
    """All legal placements under a schedule, those on early devices first."""
    closure = units(problem.graph, "ops")
    options = [np.flatnonzero(row).tolist() for row in allowed(problem, closure)]
    for devices in product(*options):
        yield Placement(expand(closure, np.array(devices, dtype=np.int32)), schedule)


def enumerated(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The fastest legal placement under a schedule; the first on a tie.

    Raises ValueError where a group is allowed on no device.
    """
    every, best = every_placement(problem, schedule), list[Placement]()
    while batch := list(islice(every, BATCH)):
        best = [fastest(problem, [*best, *batch], evaluate)]
    return best[0]
