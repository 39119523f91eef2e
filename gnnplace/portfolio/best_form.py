"""`best` of a step of several micro-batches: the form is chosen with the placement.

Rules propose replicas, shards and pipelines (`forms`), and planners place the given form. Searches go on from the best
of them and move single copies: of pipelines, of replicas, of shards. Each start keeps the order in which its ops ran,
since critical paths would put all forward passes first and fill the memories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import count
from math import ceil

from gnnplace.baselines.reorder import reordered
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import lower_bound
from gnnplace.choices import CopiesName
from gnnplace.placement import Placement, rule_of, scheduled
from gnnplace.portfolio.at_home import FOR_HOME, at_home
from gnnplace.portfolio.candidates import BY_SCORE, Candidate, candidate
from gnnplace.portfolio.halves import Half, lifted_to
from gnnplace.portfolio.loosened import loosened
from gnnplace.portfolio.portfolio import Options, portfolio, repaired
from gnnplace.portfolio.racing import raced
from gnnplace.portfolio.rounds import Search, improvements, searched
from gnnplace.portfolio.searches import Searches, own_order
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, OVERFLOWS, Evaluator, known, score
from gnnplace.schedules.breadth_first import breadth_first
from gnnplace.schedules.start_order import start_order
from gnnplace.step_forms import freed

FAR = 2.0  # times the best start's step: how far behind another is searched from
FOR_GIVEN, FOR_GIVEN_ALONE = 0.06, 0.4  # the share of the budget for the given form, and where no rule fits
REPAIRED, FOR_REPAIRS = 2, 0.2  # how many rules that overflow are repaired, and their share of the budget together
MOST_STARTS, STARTED_OPS = 12, 200_000  # a start of so many ops has no time to lose to others
LOOSENED: tuple[CopiesName, ...] = ("anchored", "free")  # what becomes of replicas that stand on a device each
FOR_HALF = 0.4  # the share of the budget for half as many micro-batches
PARTS = (1.0, 0.5, 0.25, 0.1)  # of a device's last micro-batch but one, which wait for the last
FOR_CLIMB = 0.8  # the share of a search for ranked moves, before annealing
FOR_ORDER = 0.04  # the share at the end for the order of ops


def best_of_forms(
    problem: Problem,
    evaluate: Evaluator,
    budget: Budget,
    options: Options,
    rules: Sequence[Candidate],
    half: Half | None = None,
) -> Candidate:
    """The best of the rules' candidates, of the portfolio for the given form, and of searches from these.

    The half of a step of many micro-batches is searched first.
    """
    run = _Run(problem, evaluate, budget, options)
    for rule in rules:
        run.progress(rule.planner, rule.score)
    rivals = [run.given(rules), *rules]
    rivals += run.repairs(rivals)
    rivals += run.lifted(half)
    starts = run.starts(rivals)
    if starts and budget.allows(1):
        last = 1 - FOR_HOME - (FOR_ORDER if run.open else 0)
        rivals.append(raced(starts, budget.until(last), run.searched))
    best = run.ordered(min(rivals, key=BY_SCORE))
    return replace(at_home(best.form or problem, evaluate, best, budget), form=best.form)


class _Run:
    """One search among forms. Its budget ends at a bound on every form."""

    def __init__(self, problem: Problem, evaluate: Evaluator, budget: Budget, options: Options) -> None:
        self._problem, self._options, self._simulate = problem, options, evaluate
        self._free = cache(freed)
        self._budget = budget
        self._evaluate = budget.metered(evaluate)
        self._searches = Searches(self._evaluate, options.seed, options.search, own_order)
        self._seeds = count(options.seed)
        self.progress = improvements(options.progress)

    @property
    def open(self) -> bool:
        """Whether the order of ops is open, too."""
        return self._options.schedule == "given"

    def given(self, rules: Sequence[Candidate]) -> Candidate:
        """The winner of the portfolio for the given form, which has the rules for this form among its planners."""
        fits = any(rule.score.feasibility == FEASIBLE for rule in rules)
        part = self._budget.left(FOR_GIVEN if fits else FOR_GIVEN_ALONE).anew(lower_bound(self._problem))
        same = {rule.planner: known(rule.placement) for rule in rules if rule.form is None}
        return portfolio(self._problem, self._evaluate, part, replace(self._options, also=same, progress=self.progress))

    def repairs(self, rivals: Sequence[Candidate]) -> list[Candidate]:
        """Repairs of the fastest that overflow, if nothing that fits is as fast."""
        first = min(rivals, key=BY_SCORE)
        fast = [
            each
            for each in rivals
            if each.score.feasibility == OVERFLOWS
            and (first.score.feasibility == OVERFLOWS or each.score.step_time_ns < first.score.step_time_ns)
        ]
        fast.sort(key=lambda each: each.score.step_time_ns)
        repairs, part = list[Candidate](), self._budget.left(FOR_REPAIRS)
        for place, each in enumerate(fast[:REPAIRED]):
            form = each.form or self._problem
            placement = repaired(
                form, self._evaluate, each.placement, part.left(1 / (min(len(fast), REPAIRED) - place))
            )
            repairs.append(self._candidate(form, f"repaired {each.planner}", placement))
            self.progress(repairs[-1].planner, repairs[-1].score)
        return repairs

    def lifted(self, half: Half | None) -> list[Candidate]:
        """The result for half as many micro-batches, lifted; none where it doesn't fit."""
        if half is None or not self._budget.allows(1):
            return []
        part = self._budget.left(FOR_HALF).anew(half.bound_ns)
        options = replace(self._options, starts=None, also={}, progress=Options.progress)
        winner = best_of_forms(half.problem, self._simulate, part, options, half.rules, half.half)
        self._budget.pay(part.spent)
        if winner.score.feasibility != FEASIBLE:
            return []
        return [lifted_to(self._problem, replace(winner, form=winner.form or half.problem), self._evaluate)]

    def starts(self, rivals: Sequence[Candidate]) -> list[Candidate]:
        """The starts of searches, best first: rivals that are not far behind, in forms whose copies move.

        At most half of them are of one planner, and of one schedule, so that a large graph, for which there are few,
        has several of both.
        """
        behind = _behind(min(rivals, key=BY_SCORE))
        near = [each for each in sorted(rivals, key=BY_SCORE) if each.score <= behind.score]
        most = max(2, min(MOST_STARTS, STARTED_OPS // self._problem.num_ops))
        started = dict[object, Candidate]()
        for rival in near[: 2 * most]:
            for form, placement in self._loosened(rival):
                for ordered in self._orders(form, placement):
                    start = self._candidate(form, rival.planner, ordered)
                    if start.score <= behind.score:
                        started.setdefault((id(form), ordered.schedule, start.score), start)
        chosen, alike = list[Candidate](), Counter[str]()
        for start in sorted(started.values(), key=BY_SCORE):
            kinds = start.planner, start.placement.schedule
            if max(alike[kind] for kind in kinds) < ceil(most / 2) and len(chosen) < most:
                chosen.append(start)
                alike.update(kinds)
        return chosen

    def _loosened(self, rival: Candidate) -> Iterator[tuple[Problem, Placement]]:
        """The candidate in a form in which a search can move something."""
        form, placement = rival.form or self._problem, rival.placement
        copies = form.graph.copies
        assert copies is not None
        if copies.placed != "whole" or copies.one_home:
            yield form, placement
        else:
            for copies_stand in LOOSENED:
                if (proposal := loosened(form, placement, self._evaluate, copies_stand)) is not None:
                    yield proposal

    def _orders(self, form: Problem, placement: Placement) -> Iterator[Placement]:
        """The placement in the order in which its ops ran, breadth-first if that is faster, and in its own orders."""
        if not self.open:
            yield scheduled(placement, self._options.schedule)
            return
        (result,) = self._evaluate(form, [placement], timeline=True)
        if result.timeline is not None:
            order = start_order(form.graph, result.timeline)
            yield Placement(placement.device, "given", order)
            others = [breadth_first(form.graph, placement.device, result.timeline, part) for part in PARTS]
            orders = [Placement(placement.device, "given", each) for each in others if each is not None]
            scores = [score(form, each) for each in self._evaluate(form, orders)]
            if scores and (least := min(scores)) < score(form, result):
                yield orders[scores.index(least)]
            if placement.schedule == "in-order":
                yield Placement(placement.device, "in-order", order)
        yield scheduled(placement, rule_of(placement.schedule))

    def searched(self, start: Candidate, budget: Budget) -> Candidate:
        """The result of a climb and annealing from a start, whose order is kept.

        Copies that stood together stand freely in the result, for the next search: together they move faster, but not
        as far.
        """
        part, searches = budget.left(FOR_CLIMB), replace(self._searches, seed=next(self._seeds))
        climbed = self._from("ranked-climb", searches.climbed, start, part)
        result = self._from("annealing", searches.annealed, climbed, budget)
        form = result.form or self._problem
        if form.graph.copies is None or form.graph.copies.placed != "together":
            return result
        return self._candidate(self._free(form), result.planner, result.placement)

    def ordered(self, winner: Candidate) -> Candidate:
        """The result of a search for a faster order of the ops from a winner."""
        if not self.open:
            return winner
        search = partial(reordered, evaluate=self._evaluate, seed=self._options.seed)
        return self._from("order", search, winner, self._budget.until(1 - FOR_HOME))

    def _from(self, name: str, search: Search, start: Candidate, budget: Budget) -> Candidate:
        """The result of a search from a start, in its form. It is named after the first start."""
        form, origin = start.form or self._problem, start.planner.rpartition(" from ")[2]
        first = replace(start, planner=origin)
        winner = searched(form, self._evaluate, first, name, search, budget, self.progress)
        return start if winner is first else replace(winner, form=start.form)

    def _candidate(self, form: Problem, planner: str, placement: Placement) -> Candidate:
        return replace(
            candidate(form, self._evaluate, planner, placement), form=None if form is self._problem else form
        )


def _behind(first: Candidate) -> Candidate:
    """The first candidate with a step so long that a start behind it is not worth a search."""
    score = first.score._replace(step_time_ns=int(FAR * first.score.step_time_ns))
    return replace(first, score=score)
