"""The optimum of a tiny problem, by trying every legal placement: what other planners are tested against."""

from __future__ import annotations

from gnnplace.placement import Placement, Schedule
from gnnplace.portfolio.portfolio import enumerated, placements
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

MAX_PLACEMENTS = 2**20


def exhaustive(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The fastest legal placement under a schedule. Raises ValueError beyond `MAX_PLACEMENTS`, or where a group may stand nowhere."""
    if (count := placements(problem)) > MAX_PLACEMENTS:
        raise ValueError(f"{problem.graph.name} on {problem.cluster.name}: {count:.3g} placements are more than {MAX_PLACEMENTS}")
    return enumerated(problem, evaluate, schedule=schedule)
