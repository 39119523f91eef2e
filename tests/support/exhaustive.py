"""Every legal placement, for tiny problems: the optimum that other planners are tested against."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import numpy as np

from gnnplace.baselines.fastest import fastest
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import allowed, expand, units

MAX_PLACEMENTS = 2**20
BATCH = 1024  # placements evaluated together


def exhaustive(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The fastest legal placement under a schedule. Raises ValueError beyond `MAX_PLACEMENTS`, or where a group may stand nowhere."""
    count = float(np.prod(allowed(problem, units(problem.graph, "ops")).sum(axis=1, dtype=np.float64)))
    if count > MAX_PLACEMENTS:
        raise ValueError(f"{problem.graph.name} on {problem.cluster.name}: {count:.3g} placements are more than {MAX_PLACEMENTS}")
    placements = _every(problem, schedule)
    best: list[Placement] = []
    while batch := list(islice(placements, BATCH)):
        best = [fastest(problem, [*best, *batch], evaluate)]
    return best[0]


def _every(problem: Problem, schedule: Schedule) -> Iterator[Placement]:
    made = units(problem.graph, "ops")
    options = [np.flatnonzero(row).tolist() for row in allowed(problem, made)]
    for devices in product(*options):
        yield Placement(expand(made, np.array(devices, dtype=np.int32)), schedule)
