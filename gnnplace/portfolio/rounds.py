"""A portfolio (Huberman, Lukose and Hogg, 1997): planners one after another, then searches from the best placements,
until the budget ends.

Planners get the first half of the budget and the searches the rest, because searches find better placements. Where
evaluations are counted, each planner has a share of that half (`searching/rations`), so that none is left out because
others have more to try on one device more or with more memory. Placements that overflow a memory but would be faster
than all that fit are repaired in between. Which start leads to the best result is unknown in advance: the best few
share a tenth of the rest for a search that is quick to improve, and the best result of these gets what is left.
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

FOR_PLANNERS, FOR_REPAIRS = 0.5, 0.7  # of the budget: until when planners are asked, and repairs begin
FOR_ORDER = 0.3  # of a budget, its end: the order of ops, where it is free
FEW, FOR_FEW = 4, 0.1  # starts of a search, and the share of the remaining budget that they get together
LEAST_BRIEF = 5  # evaluations: the start and one round of moves
TELLING = 0.99  # a search reports a step time that is at most this share of the last one reported

Progress = Callable[[str, Score], object]
# reports its scores; never worse than its start
Search = Callable[[Problem, Placement, Budget, Callable[[Score], object]], Placement]


@runtime_checkable
class Repairer(Protocol):
    """A way to repair: what makes a placement fit, and what hastens one that fits; the result is never worse."""

    def relieved(self, placement: Placement) -> Placement: ...
    def hastened(self, placement: Placement) -> Placement: ...


def best(
    problem: Problem,
    evaluate: Rationed,
    planners: Mapping[str, Planner],
    budget: Budget,
    progress: Progress = lambda planner, score: None,
) -> list[Candidate]:
    """Runs the planners in order until half of the budget is used, the first one in any case. Returns distinct
    placements, best first.

    Evaluations of that half are shared out evenly among the planners that `evaluate` rations; what one leaves goes to
    those after it. None is asked once one has used more than is left. A placement that can't be faster than one that
    fits is left out. Raises ValueError if there are no planners.
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
    """What the next of so many planners may evaluate: twice its part, since
    most leave something; None where time is what is short.
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
    """The winners and the repairs of those that overflow, best first. A step that is no faster than one that fits is
    not repaired.

    The one that is fast and has least to move is repaired in every way, for half of the time that there is, and the
    others in the way that serves it best. The best `FEW` repairs are hastened, and the first that fits at once, so that
    one repair is complete on a large graph too. Evaluations count against the budget.
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
    """What the step of a repair may take: what is too much on some devices
    crosses a link at each step, the slowest that there is.
    """
    slowest = min((link.bandwidth_bytes_per_s for link in problem.cluster.links), default=1)
    return winner.score.step_time_ns + 1e9 * winner.score.excess_bytes / slowest


def _promises(winner: Candidate, rivals: Sequence[Candidate]) -> bool:
    """Whether a placement that overflows would be faster than all that fit."""
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
    """The result of a search from `winner` with the rest of the budget,
    or `winner` itself where the result is no better.
    """
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
    """A brief search from each of the best `FEW` winners, then a long one from the best result; both have names.

    The brief ones share `FOR_FEW` of the budget; there are fewer where that is less than `LEAST_BRIEF` evaluations for
    each.
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
    """Reports a score only if it improves on the last one by a share of 1 -
    `TELLING`: a search finds hundreds of small improvements.
    """

    def report(score: Score) -> None:
        nonlocal last
        if score <= Score(last.feasibility, int(TELLING * last.excess_bytes), int(TELLING * last.step_time_ns)):
            last = score
            say(score)

    return report


def nearest_modules(problem: Problem, placement: Placement) -> Placement:
    """Whole modules near a placement: each on the device that has most of its work (in ns of the fastest device), of
    those that are allowed for all its ops.

    A module for which there is none stays as it is; so do the schedule and the priorities.
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
    """The winners and the nearest whole modules to the best `FEW`, best first; no modules that are worse and take
    longer than the best.

    What places single ops splits modules where it sees no cost, and searches of single ops rarely join them again; a
    placement with the same modules whole is sometimes faster, or close to one that is.

    Those that are faster may overflow a memory: repairs follow. The budget meters the evaluator, which is not asked of
    modules that are whole already.
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
