"""The score of a placement: the one rule by which every baseline chooses among placements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult

FEASIBLE, OVERFLOWS, TIMELESS = range(3)


class Score(NamedTuple):
    """Sorts results, best first: feasible ones by step time, then those that overflow a memory by the excess, then those without a time.

    `feasibility` is `FEASIBLE`, `OVERFLOWS` or `TIMELESS`. `excess_bytes` is the sum over devices of the bytes beyond their memories.
    """

    feasibility: int
    excess_bytes: int
    step_time_ns: int

    @property
    def limit_ns(self) -> int | None:
        """A longer step than this scores worse. None for an overflow, where a longer step with a smaller overflow scores better."""
        return self.step_time_ns if self.feasibility == FEASIBLE else None


def fastest(problem: Problem, placements: Sequence[Placement], evaluate: Evaluator) -> Placement:
    """The placement with the best score; the first on a tie. Raises ValueError for an empty sequence."""
    if not placements:
        raise ValueError("placements: at least one is needed")
    scores = [score(problem, result) for result in evaluate(problem, placements)]
    return placements[scores.index(min(scores))]


def fastest_that_fits(problem: Problem, proposals: Iterable[Sequence[Placement]], evaluate: Evaluator) -> Placement:
    """The placement with the best score of the first proposals, and of further ones only as long as none is feasible.

    Raises ValueError where there are none.
    """
    best: tuple[Score, Placement] | None = None
    for placements in proposals:
        for placement, result in zip(placements, evaluate(problem, placements), strict=True):
            if best is None or score(problem, result) < best[0]:
                best = score(problem, result), placement
        if best is not None and best[0].feasibility == FEASIBLE:
            break
    if best is None:
        raise ValueError("placements: at least one is needed")
    return best[1]


def score(problem: Problem, result: StepResult) -> Score:
    """The score of a result of `problem`."""
    if result.step_time_ns is None or result.peak_memory_bytes is None:
        return Score(TIMELESS, 0, 0)
    if result.infeasible is None:
        return Score(FEASIBLE, 0, result.step_time_ns)
    excess = np.maximum(0, result.peak_memory_bytes - problem.cluster.memory_bytes)
    return Score(OVERFLOWS, int(excess.sum()), result.step_time_ns)
