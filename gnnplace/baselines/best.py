"""A portfolio (Huberman, Lukose and Hogg, 1997): planners in their order, then searches from the best placement, until the budget ends.

No planner starts once half of the budget is gone: the rest is for the searches, which get further than any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from gnnplace.baselines.budget import Budget
from gnnplace.baselines.fastest import Standing, standing
from gnnplace.placement import Placement
from gnnplace.problem import Problem
from gnnplace.result import Evaluator, Planner

FOR_PLANNERS = 0.5  # of the budget
TELLING = 0.99  # a search says what it found where that takes at most this share of what was said last
Progress = Callable[[str, Standing], object]
Search = Callable[[Problem, Placement, Budget, Callable[[Standing], object]], Placement]  # says what it finds; never worse than its start


class Winner(NamedTuple):
    """The best placement, how it stands, and whose it is."""

    placement: Placement
    standing: Standing
    planner: str


def best(
    problem: Problem,
    evaluate: Evaluator,
    planners: Mapping[str, Planner],
    budget: Budget,
    progress: Progress = lambda planner, standing: None,
) -> Winner:
    """The best of the planners that half of the budget allowed, the first one in any case.

    Evaluations that planners make count where their evaluator is `Counted` against this budget. Raises ValueError without a planner.
    """
    winner: Winner | None = None
    for name, plan in planners.items():
        if winner is None or budget.used < FOR_PLANNERS:
            winner = _better(winner, _judged(problem, evaluate, name, plan(problem)))
            progress(winner.planner, winner.standing)
    if winner is None:
        raise ValueError("planners: there is none to choose from")
    return winner


def searched(
    problem: Problem,
    evaluate: Evaluator,
    winner: Winner,
    searches: Mapping[str, Search],
    budget: Budget,
    progress: Progress = lambda planner, standing: None,
) -> Winner:
    """The best of what searches find from a winner, one after another, each from the best so far, until the budget ends."""
    for name, search in searches.items():
        if budget.allows(1):
            name = f"{name} from {winner.planner}"
            placement = search(problem, winner.placement, budget, _sparing(partial(progress, name), winner.standing))
            winner = _better(winner, _judged(problem, evaluate, name, placement))
            progress(winner.planner, winner.standing)
    return winner


def _sparing(say: Callable[[Standing], object], said: Standing) -> Callable[[Standing], object]:
    """Says what is a good deal better than what was said before: a search finds hundreds of small improvements."""

    def found(standing: Standing) -> None:
        nonlocal said
        feasibility, overflow, time = said
        if standing <= (feasibility, int(TELLING * overflow), int(TELLING * time)):
            said = standing
            say(standing)

    return found


def _judged(problem: Problem, evaluate: Evaluator, name: str, placement: Placement) -> Winner:
    (result,) = evaluate(problem, [placement])
    return Winner(placement, standing(problem, result), name)


def _better(winner: Winner | None, found: Winner) -> Winner:
    return found if winner is None or found.standing < winner.standing else winner
