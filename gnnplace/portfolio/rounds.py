"""The rounds of a portfolio (Huberman, Lukose and Hogg, 1997): planners, repairs, searches from the best placements.

Planners get the first half of the budget and searches the rest, because searches find better placements. If evaluations
are limited, each planner has a share of that half (`searching/rations`). Otherwise the first planners would use all of
it on clusters with more devices or memory, where they have more to try. A placement that overflows a memory but would
be faster than all placements that fit is repaired in between. It is unknown which start leads to the best result: the
best few share a tenth of the rest for a brief search each, and the best result gets the remaining budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.placement import Placement
from gnnplace.portfolio.candidates import BY_SCORE, Candidate, Identity, candidate, identity
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, OVERFLOWS, TIMELESS, Evaluator, Planner, Score
from gnnplace.units.modules import modules

FOR_PLANNERS, FOR_REPAIRS = 0.5, 0.7  # used shares of the budget after which no planner and no repair begins
FOR_ORDER = 0.3  # the share at the end of the budget for the order of ops, if the schedule leaves it open
FEW, FOR_FEW = 4, 0.1  # starts of a search, and the share of the remaining budget that they get together
LEAST_BRIEF = 5  # evaluations: the start and one round of moves
TELLING = 0.99  # a search reports a step time that is at most this share of the last one reported

Progress = Callable[[str, Score], object]
# a search calls its last argument with its scores; its result is never worse than its start
Search = Callable[[Problem, Placement, Budget, Callable[[Score], object]], Placement]


@runtime_checkable
class Repairer(Protocol):
    """A way to repair placements. The result is never worse.

    `relieved` makes a placement fit its memories; `hastened` makes a placement that fits faster.
    """

    def relieved(self, placement: Placement) -> Placement: ...
    def hastened(self, placement: Placement) -> Placement: ...


def best(
    problem: Problem,
    evaluate: Rationed,
    planners: Mapping[str, Planner],
    budget: Budget,
    progress: Progress = lambda planner, score: None,
) -> list[Candidate]:
    """Runs planners in order until half of the budget is used, and at least the first. Returns distinct candidates.

    The candidates are sorted, best first. `evaluate` gives each planner an equal share of the half's evaluations; what
    a planner leaves goes to those after it. No planner starts once the last one has used more than is left. A placement
    that can't be faster than one that fits is left out. Raises ValueError if there are no planners.
    """
    by_identity: dict[Identity, Candidate] = {}
    used = last = 0.0
    for place, (name, plan) in enumerate(planners.items()):
        if not by_identity or (used + last <= FOR_PLANNERS and used < FOR_PLANNERS):
            evaluate.left = _ration(budget, len(planners) - place)
            placement = plan(problem)
            evaluate.left = None if evaluate.left is None else max(1, evaluate.left)
            winner = candidate(problem, evaluate, name, placement)
            if winner.score.feasibility != TIMELESS or not by_identity:
                by_identity.setdefault(identity(winner.placement), winner)
                progress(name, winner.score)
            last, used = budget.used - used, budget.used
    evaluate.left = None
    if not by_identity:
        raise ValueError("planners: at least one is needed")
    return sorted(by_identity.values(), key=BY_SCORE)


def _ration(budget: Budget, planners: int) -> int | None:
    """The number of evaluations for the next of so many planners; None if evaluations are not limited.

    It is twice an equal share, since most planners leave some.
    """
    if budget.evaluations is None:
        return None
    left = budget.until(FOR_PLANNERS).allows(budget.evaluations)
    return max(1, min(left, 2 * left // planners))


def with_repairs(
    problem: Problem,
    evaluate: Evaluator,
    winners: Sequence[Candidate],
    repairs: Sequence[Repairer],
    budget: Budget,
    progress: Progress = lambda planner, score: None,
) -> list[Candidate]:
    """The winners and the repairs of winners that overflow, best first.

    A winner is repaired only if its step is faster than all that fit. The winner that is fast and has least to move is
    repaired in every way, for half of the time that is left, and the others in the way that was best for it. The best
    `FEW` repairs are hastened. The first that fits is hastened at once, so that one repair is complete on a large graph
    too. Evaluations count against the budget.
    """
    attempts, ways = _Repairs(problem, evaluate, budget, progress), list(repairs)
    for winner in sorted(winners, key=partial(_repaired_ns, problem)):
        if attempts.may_begin and _promises(winner, [*winners, *attempts.candidates]):
            until, tried = (budget.used + FOR_REPAIRS) / 2, list[tuple[Candidate, Repairer]]()
            for way in ways:
                if budget.used < until or not tried:
                    tried.append((attempts.relieve(winner, way), way))
            ways = [min(tried, key=lambda each: each[0].score)[1]]
    for relieved, way in sorted(attempts.relieved.values(), key=lambda each: each[0].score)[:FEW]:
        if attempts.may_begin:
            attempts.hasten(relieved, way)
    return sorted({identity(each.placement): each for each in [*attempts.candidates, *winners]}.values(), key=BY_SCORE)


class _Repairs:
    """Repairs of one problem under a budget."""

    def __init__(self, problem: Problem, evaluate: Evaluator, budget: Budget, progress: Progress) -> None:
        self.problem, self.evaluate, self.budget, self.progress = problem, budget.metered(evaluate), budget, progress
        self.relieved: dict[Identity, tuple[Candidate, Repairer]] = {}
        self.hastened: dict[Identity, Candidate] = {}  # by the placement before

    @property
    def may_begin(self) -> bool:
        """Whether a repair may begin: the first while any budget is left, others until `FOR_REPAIRS` of it is used."""
        return self.budget.used < FOR_REPAIRS if self.relieved else self.budget.allows(1) > 0

    @property
    def candidates(self) -> list[Candidate]:
        return [*self.hastened.values(), *(winner for winner, _ in self.relieved.values())]

    def relieve(self, winner: Candidate, way: Repairer) -> Candidate:
        relieved = self._judged(f"repaired {winner.planner}", way.relieved(winner.placement))
        self.relieved.setdefault(identity(relieved.placement), (relieved, way))
        if not self.hastened:
            self.hasten(relieved, way)
        return relieved

    def hasten(self, relieved: Candidate, way: Repairer) -> None:
        if relieved.score.feasibility == FEASIBLE and (same := identity(relieved.placement)) not in self.hastened:
            self.hastened[same] = self._judged(relieved.planner, way.hastened(relieved.placement))

    def _judged(self, name: str, placement: Placement) -> Candidate:
        winner = candidate(self.problem, self.evaluate, name, placement)
        self.progress(name, winner.score)
        return winner


def _repaired_ns(problem: Problem, winner: Candidate) -> float:
    """An estimate of a repaired step: at each step, the excess bytes cross the slowest link."""
    slowest = min((link.bandwidth_bytes_per_s for link in problem.cluster.links), default=1)
    return winner.score.step_time_ns + 1e9 * winner.score.excess_bytes / slowest


def _promises(winner: Candidate, rivals: Sequence[Candidate]) -> bool:
    """Whether a placement overflows and would be faster than all rivals that fit."""
    fits = [each.score.step_time_ns for each in rivals if each.score.feasibility == FEASIBLE]
    return winner.score.feasibility == OVERFLOWS and all(winner.score.step_time_ns < time for time in fits)


def searched(
    problem: Problem,
    evaluate: Evaluator,
    winner: Candidate,
    name: str,
    search: Search,
    budget: Budget,
    progress: Progress = lambda planner, score: None,
) -> Candidate:
    """The result of a search from `winner` with the rest of the budget; `winner` itself if the result is no better."""
    if not budget.allows(1):
        return winner
    name = winner.planner if winner.planner.startswith(f"{name} from") else f"{name} from {winner.planner}"
    placement = search(problem, winner.placement, budget, _sparing(partial(progress, name), winner.score))
    if identity(placement) == identity(winner.placement):
        return winner
    outcome = min(winner, candidate(problem, budget.metered(evaluate), name, placement), key=BY_SCORE)
    progress(outcome.planner, outcome.score)
    return outcome


def searched_from_few(
    problem: Problem,
    evaluate: Evaluator,
    winners: Sequence[Candidate],
    brief: tuple[str, Search],
    long: tuple[str, Search],
    budget: Budget,
    progress: Progress = lambda planner, score: None,
) -> Candidate:
    """A brief search from each of the best `FEW` winners, then a long search from the best result.

    The brief searches share `FOR_FEW` of the budget. There are fewer if each would have less than `LEAST_BRIEF`
    evaluations. `brief` and `long` are the searches with their names.
    """
    few = list(winners[: max(1, min(FEW, budget.left(FOR_FEW).allows(FEW * LEAST_BRIEF) // LEAST_BRIEF))])
    for place, winner in enumerate(few if len(few) > 1 else []):
        part = budget.left(FOR_FEW / (len(few) - FOR_FEW * place))
        few[place] = searched(problem, evaluate, winner, *brief, part, progress)
    return searched(problem, evaluate, min(few, key=BY_SCORE), *long, budget, progress)


def improvements(say: Progress) -> Progress:
    """Reports a score only if it improves on every score reported so far."""
    last: Score | None = None

    def news(planner: str, score: Score) -> None:
        nonlocal last
        if last is None or score < last:
            last = score
            say(planner, score)

    return news


def _sparing(say: Callable[[Score], object], last: Score) -> Callable[[Score], object]:
    """Reports a score only if it improves on the last one by a share of 1 - `TELLING`.

    A search finds hundreds of small improvements.
    """

    def report(score: Score) -> None:
        nonlocal last
        if score <= Score(last.feasibility, int(TELLING * last.excess_bytes), int(TELLING * last.step_time_ns)):
            last = score
            say(score)

    return report


def nearest_modules(problem: Problem, placement: Placement) -> Placement:
    """The placement with whole modules: each on the device that has most of its work, in ns of the fastest device.

    Only devices that are allowed for all ops of the module count. A module without such a device keeps its devices. The
    schedule and the priorities stay.
    """
    module_map = modules(problem.graph)
    work = np.zeros((module_map.num_modules, problem.num_devices), dtype=np.int64)
    np.add.at(work, (module_map.module, placement.device), problem.time_ns.min(axis=1))
    legal = np.ones(work.shape, dtype=bool)
    np.logical_and.at(legal, module_map.module, problem.allowed)
    most = np.where(legal, work, -1).argmax(axis=1)
    whole = np.flatnonzero(legal.any(axis=1))
    return replace(
        placement,
        device=np.where(np.isin(module_map.module, whole), most[module_map.module], placement.device).astype(np.int32),
    )


def with_nearest_modules(
    problem: Problem,
    evaluate: Evaluator,
    winners: Sequence[Candidate],
    budget: Budget,
    progress: Progress = lambda planner, score: None,
) -> list[Candidate]:
    """The winners and the best `FEW` of them with whole modules, best first.

    Planners of single ops split modules at edges that seem to cost nothing, and searches over single ops rarely join
    them again. The placement with whole modules is sometimes faster, or close to a faster one. It is left out if it is
    worse than the best winner and its step takes longer. It may be faster and overflow a memory: repairs follow. A
    placement whose modules are whole already is not evaluated again.
    """
    first, near, seen = winners[0].score, list[Candidate](), {identity(each.placement) for each in winners}
    for winner in winners[:FEW]:
        placement = nearest_modules(problem, winner.placement)
        if identity(placement) not in seen and budget.allows(1):
            seen.add(identity(placement))
            near.append(candidate(problem, evaluate, f"modules of {winner.planner}", placement))
            progress(near[-1].planner, near[-1].score)
    promising = [each for each in near if each.score <= first or each.score.step_time_ns <= first.step_time_ns]
    return sorted([*winners, *promising], key=BY_SCORE)
