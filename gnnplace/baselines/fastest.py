"""Which of several placements is the best one: the one rule by which every baseline chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult

FEASIBLE, OVERFLOWS, TIMELESS = range(3)


class Standing(NamedTuple):
    """Sorts results, the best first: feasible ones by step time, then those that overflow by how much, then those without a time."""

    feasibility: int
    excess_bytes: int
    step_time_ns: int

    @property
    def limit_ns(self) -> int | None:
        """A step that is longer than this stands worse; None where a longer one may stand better, because it overflows less."""
        return self.step_time_ns if self.feasibility == FEASIBLE else None


def fastest(problem: Problem, placements: Sequence[Placement], evaluate: Evaluator) -> Placement:
    """The placement that stands best, the earliest of equals. Raises ValueError where there is none to choose from."""
    if not placements:
        raise ValueError("placements: there is none to choose from")
    standings = [standing(problem, result) for result in evaluate(problem, placements)]
    return placements[standings.index(min(standings))]


def standing(problem: Problem, result: StepResult) -> Standing:
    """How good a result is."""
    if result.step_time_ns is None or result.peak_memory_bytes is None:
        return Standing(TIMELESS, 0, 0)
    if result.infeasible is None:
        return Standing(FEASIBLE, 0, result.step_time_ns)
    excess = np.maximum(0, result.peak_memory_bytes - problem.cluster.memory_bytes)
    return Standing(OVERFLOWS, int(excess.sum()), result.step_time_ns)
