"""A portfolio (Huberman, Lukose and Hogg, 1997): planners in their order, then searches from the best few, until the budget ends.

No planner starts once half of the budget is gone: the rest is for the searches, which get further than any of them. Which start leads
furthest is not known before: a tenth of a search goes to the best few in equal parts, the rest to the best of what they led to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from gnnplace.baselines.fastest import Standing, standing
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner

FOR_PLANNERS = 0.5  # of the budget
FEW, FOR_FEW = 4, 0.1  # placements that a search begins with, and what they get together of what is left of the budget
TELLING = 0.99  # a search says what it found where that takes at most this share of what was said last
BY_STANDING = attrgetter("standing")

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
) -> list[Winner]:
    """What the planners propose that half of the budget allowed, the first one in any case: the best first, each placement once.

    Evaluations that planners make count where their evaluator is `Counted` against this budget. Raises ValueError without a planner.
    """
    found: dict[tuple[bytes, bytes | None], Winner] = {}
    for name, plan in planners.items():
        if not found or budget.used < FOR_PLANNERS:
            winner = _judged(problem, evaluate, name, plan(problem))
            found.setdefault(_identity(winner.placement), winner)
            progress(name, winner.standing)
    if not found:
        raise ValueError("planners: there is none to choose from")
    return sorted(found.values(), key=BY_STANDING)


def searched(
    problem: Problem,
    evaluate: Evaluator,
    winner: Winner,
    name: str,
    search: Search,
    budget: Budget,
    progress: Progress = lambda planner, standing: None,
) -> Winner:
    """What a search finds from a winner until the budget ends; the winner where that is no better."""
    if not budget.allows(1):
        return winner
    name = winner.planner if winner.planner.startswith(f"{name} from") else f"{name} from {winner.planner}"
    placement = search(problem, winner.placement, budget, _sparing(partial(progress, name), winner.standing))
    found = min(winner, _judged(problem, evaluate, name, placement), key=BY_STANDING)
    progress(found.planner, found.standing)
    return found


def searched_from_few(
    problem: Problem,
    evaluate: Evaluator,
    winners: Sequence[Winner],
    name: str,
    search: Search,
    budget: Budget,
    progress: Progress = lambda planner, standing: None,
) -> Winner:
    """What a search finds from the best few winners, in equal parts of a share of what is left, and then from the best of these."""
    few = list(winners[:FEW])
    for place, winner in enumerate(few if len(few) > 1 else []):
        part = budget.left(FOR_FEW / (len(few) - FOR_FEW * place))
        few[place] = searched(problem, evaluate, winner, name, search, part, progress)
        budget.spent += part.spent
    return searched(problem, evaluate, min(few, key=BY_STANDING), name, search, budget, progress)


def improvements(say: Progress) -> Progress:
    """Says only what is better than all that was said before."""
    said: Standing | None = None

    def news(planner: str, standing: Standing) -> None:
        nonlocal said
        if said is None or standing < said:
            said = standing
            say(planner, standing)

    return news


def _sparing(say: Callable[[Standing], object], said: Standing) -> Callable[[Standing], object]:
    """Says what is a good deal better than what was said before: a search finds hundreds of small improvements."""

    def found(standing: Standing) -> None:
        nonlocal said
        if standing <= Standing(said.feasibility, int(TELLING * said.excess_bytes), int(TELLING * said.step_time_ns)):
            said = standing
            say(standing)

    return found


def _judged(problem: Problem, evaluate: Evaluator, name: str, placement: Placement) -> Winner:
    (result,) = evaluate(problem, [placement])
    return Winner(placement, standing(problem, result), name)


def _identity(placement: Placement) -> tuple[bytes, bytes | None]:
    return placement.device.tobytes(), None if placement.priority is None else placement.priority.tobytes()
