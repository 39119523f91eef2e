"""The fastest of some placements: the one rule by which every baseline chooses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, Score, score


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
