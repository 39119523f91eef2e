"""Which of several placements is the best one: the one rule by which every baseline chooses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.placement import Placement
from gnnplace.problem import Problem
from gnnplace.result import Evaluator, StepResult

Standing = tuple[int, int, int]


def fastest(problem: Problem, placements: Sequence[Placement], evaluate: Evaluator) -> Placement:
    """The placement that stands best, the earliest of equals. Raises ValueError where there is none to choose from."""
    if not placements:
        raise ValueError("placements: there is none to choose from")
    standings = [standing(problem, result) for result in evaluate(problem, placements)]
    return placements[standings.index(min(standings))]


def standing(problem: Problem, result: StepResult) -> Standing:
    """Sorts results, the best first: feasible ones by step time, then those that overflow by how much, then those without a time."""
    if result.step_time_ns is None or result.peak_memory_bytes is None:
        return (2, 0, 0)
    if result.infeasible is None:
        return (0, 0, result.step_time_ns)
    excess = np.maximum(0, result.peak_memory_bytes - problem.cluster.memory_bytes)
    return (1, int(excess.sum()), result.step_time_ns)
