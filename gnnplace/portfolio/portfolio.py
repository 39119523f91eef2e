"""The portfolio behind `best`: all planners, repairs, an exact search of small problems, searches from the best few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from math import prod

import numpy as np

from gnnplace.baselines.annealing import Report
from gnnplace.baselines.cp_sat.exact import MAX_CHOICES, Limit, Proved, exact
from gnnplace.baselines.reorder import reordered
from gnnplace.baselines.repairing.repair import WAYS, Repair
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.clock import running_s
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.baselines.single import fastest
from gnnplace.bounds.bounds import least_times, lower_bound
from gnnplace.choices import SEARCH, SearchName
from gnnplace.constraints import Stages
from gnnplace.placement import Placement, Schedule, rule_of, scheduled
from gnnplace.portfolio import planners
from gnnplace.portfolio.at_home import FOR_HOME, at_home
from gnnplace.portfolio.candidates import Candidate, candidate
from gnnplace.portfolio.rounds import (
    FOR_ORDER,
    FOR_PLANNERS,
    Progress,
    Search,
    best,
    improvements,
    searched,
    searched_from_few,
    with_nearest_modules,
    with_repairs,
)
from gnnplace.portfolio.searches import Searches
from gnnplace.portfolio.stages import best_stages, staged, with_best_stages
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, Planner
from gnnplace.units.units import allowed, expand, units

# a climb gains more than annealing in this many evaluations; under a clock annealing gains more, as it chooses faster
CLIMBED = 400

ORDER_S = 10.0  # of CP-SAT's work on the order of ops
LEAST_EXACT_S = 1.0  # CP-SAT starts only with at least this much time
LEAST_EVALUATIONS, MOST_EVALUATIONS, SIMULATED_OPS = 300, 5000, 4 * 10**7
# all legal placements are simulated if they have at most this many ops together: about a second
ENUMERATED_OPS = 4 * 10**6
BATCH = 1024  # placements evaluated together


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """The options of `best`.

    - `schedule`: with `given`, planners and searches plan for the schedule of the critical path, and the end of the
      budget goes to a search for a faster order.
    - `search`: a "learned" search ranks moves by the shipped checkpoint and by `path_estimate` in turns, a "plain"
      search by `path_estimate` alone.
    - `policy` is a further planner; `starts` replace the planners.
    - `stages` are one way to keep modules whole: a share of the budget goes to a search among stages, from those
      nearest to the planners' placements. If they are binding, the whole budget does.
    - `forms`: of several micro-batches, `best` may choose replicas, and copies that stand freely (`portfolio/forms`).
    - `also` are starts that take no time, beside the planners; those of their names do not run again.
    - `progress` is called with each score that improves on all scores before.
    """

    seed: int = 0
    schedule: Schedule = "given"
    search: SearchName = SEARCH
    policy: Planner | None = None
    starts: Mapping[str, Planner] | None = None
    stages: Stages | None = None
    forms: bool = False
    also: Mapping[str, Planner] = field(default_factory=dict)
    progress: Progress = lambda planner, score: None


USUAL = Options()


def portfolio(problem: Problem, evaluate: Evaluator, budget: Budget, options: Options = USUAL) -> Candidate:
    """The winner of all planners and of searches from the best few.

    The planners except searches run first, single devices before the others, then the policy if there is one. Whole
    modules near the best few are tried too. A small problem is searched exactly. Then a climb over ranked moves starts
    from the best few, and annealing from the best of these. Everything ends once a step takes no longer than the
    budget's bound.

    If there are few legal placements, all of them are evaluated instead, unless the options have a policy, `starts` or
    binding stages. With the schedule `given`, a search for a faster order follows. At last variables and views that
    nothing computes with on their devices come home.
    """
    run = _Run(problem, evaluate, Rationed(evaluate, budget), budget, options, improvements(options.progress))
    binding = options.stages is not None and options.stages.binding
    winner = run.best_of_all() if options.starts is None and options.policy is None and not binding else None
    if winner is None:
        starts = run.starts() if options.starts is None else options.starts
        starts = starts if options.policy is None else {**starts, "policy": staged(run.policy, options.stages)}
        if options.stages is not None and binding:
            return best_stages(
                problem, options.stages, evaluate, options.seed, budget, options.schedule, starts, run.progress
            )
        winner = run.refined(*run.proposed(starts))
    winner = winner if options.schedule == run.rule else run.ordered(winner)
    return at_home(problem, evaluate, winner, budget)


@dataclass(frozen=True, eq=False)
class _Run:
    """One run of the portfolio.

    `tried` is the evaluator of planners. `progress` reports improvements only, `options.progress` anything.
    """

    problem: Problem
    evaluate: Evaluator
    tried: Rationed
    budget: Budget
    options: Options
    progress: Progress

    @property
    def rule(self) -> Schedule:
        """The schedule for which planners plan, and all searches except the search for an order."""
        return rule_of(self.options.schedule)

    def policy(self, problem: Problem) -> Placement:
        """The policy's placement, under the schedule of the options."""
        assert self.options.policy is not None
        return planned(self.options.policy(problem), self.options.schedule)

    @property
    def small(self) -> bool:
        """Whether the problem is searched exactly."""
        return self.problem.num_ops * self.problem.num_devices <= MAX_CHOICES

    def best_of_all(self) -> Candidate | None:
        """The best of all legal placements; None if they are too many for half of the budget, or if none fits."""
        number, part = placements(self.problem), self.budget.left(FOR_PLANNERS)
        too_short = part.seconds_left is not None and part.seconds_left < LEAST_EXACT_S
        if number * self.problem.num_ops > ENUMERATED_OPS or too_short or part.allows(int(number)) < number:
            return None
        metered = self.budget.metered(self.evaluate)
        placement = enumerated(self.problem, metered, schedule=self.rule)
        winner = candidate(self.problem, metered, f"all {number:,.0f} placements", placement)
        self.progress(winner.planner, winner.score)
        return winner if winner.score.feasibility == FEASIBLE else None

    def starts(self) -> dict[str, Planner]:
        """All planners except searches, and the planner of stages if these are binding.

        Planners without one of several equal devices run only if evaluations are limited: they take much time and few
        evaluations.
        """
        named = planners.planners(self.problem, self.tried, self.options.seed, self.rule)
        left_out = {*planners.SEARCHES, *self.options.also}
        heuristics = {**self.options.also, **{name: plan for name, plan in named.items() if name not in left_out}}
        if self.options.stages and self.options.stages.binding:
            return planners.with_stages(self.problem, self.options.stages, heuristics, self.tried, self.rule)
        if self.budget.evaluations is None:
            return heuristics
        return heuristics | planners.without_one(self.problem, self.tried, self.rule)

    def proposed(self, starts: Mapping[str, Planner]) -> tuple[list[Candidate], bool]:
        """The candidates of planners, nearest modules, stages and repairs, best first; whether any is a repair."""
        problem, budget, tried, progress = self.problem, self.budget, self.tried, self.progress
        winners = with_nearest_modules(problem, tried, best(problem, tried, starts, budget, progress), budget, progress)
        if self.options.stages is not None and budget.allows(1):
            winners = with_best_stages(
                problem, self.evaluate, self.options.stages, self.options.seed, budget, self.rule, winners, progress
            )
        schedules: list[Schedule] = [self.rule] if self.options.schedule == self.rule else [self.rule, "memory"]
        repairs = _repairs(problem, self.evaluate, schedules, budget)
        proposals = with_repairs(problem, self.evaluate, winners, repairs, budget, progress)
        return proposals, len(proposals) > len(winners)

    def refined(self, winners: list[Candidate], repaired: bool) -> Candidate:
        """The winner of searches from the best few.

        The end of the budget is left for the way home, and for the search for an order if there is one.

        If evaluations are limited, a climb starts from the best of the few, and annealing from its result.
        """
        # after repairs, both searches have less budget
        for_order = FOR_ORDER * (1 - self.budget.used) if repaired else FOR_ORDER
        before = self.budget.until(1 - (FOR_HOME if self.options.schedule == self.rule else for_order))
        if self.small:
            solved = partial(self._solved, most_s=planners.EXACT_S, schedule=self.rule)
            winners = [
                searched(self.problem, self.evaluate, winners[0], "exact", solved, before, self.progress),
                *winners[1:],
            ]
        searches = Searches(self.evaluate, self.options.seed, self.options.search)
        climb, anneal = ("ranked-climb", searches.climbed), ("annealing", searches.annealed)
        if before.evaluations is not None and (left := before.allows(before.evaluations)):
            first = before.left(min(1.0, CLIMBED / left))
            winners = [searched_from_few(self.problem, self.evaluate, winners, climb, climb, first, self.progress)]
        return searched_from_few(self.problem, self.evaluate, winners, climb, anneal, before, self.progress)

    def ordered(self, winner: Candidate) -> Candidate:
        """The result of a search for a faster order of the ops from a winner. The way home keeps its share."""
        solved: Search = partial(self._solved, most_s=ORDER_S, schedule=self.options.schedule)
        search = solved if self.small else partial(reordered, evaluate=self.evaluate, seed=self.options.seed)
        before = self.budget.until(1 - FOR_HOME)
        return searched(self.problem, self.evaluate, winner, "order", search, before, self.progress)

    def _solved(
        self, problem: Problem, start: Placement, budget: Budget, report: Report, *, most_s: float, schedule: Schedule
    ) -> Placement:
        """The result of an exact search; `start` if there is no time for one.

        If the process of the search dies, `progress` gets the reason, and the result is `start`.
        """
        if (limit := _exact_limit(budget, most_s)) is None:
            return start
        evaluate = budget.metered(self.evaluate)
        try:
            solved = exact(problem, evaluate, start=start, least_times=least_times, limit=limit, schedule=schedule)
        except ChildProcessError as error:
            winner = candidate(problem, self.evaluate, f"exact: {error}; it goes on from", start)
            self.options.progress(winner.planner, winner.score)
            return start
        if isinstance(solved, Proved):
            budget.prove(solved.bound_ns)
        return solved


def planned(placement: Placement, schedule: Schedule) -> Placement:
    """A planner's placement under a schedule.

    Under `given` it keeps its own priorities, or the schedule for which it was planned. A pipeline keeps its order.
    """
    return placement if schedule == "given" or placement.schedule == "in-order" else scheduled(placement, schedule)


def repaired(problem: Problem, evaluate: Evaluator, placement: Placement, budget: Budget) -> Placement:
    """The best repair of a placement that overflows, which may still overflow; a placement that fits is returned.

    The schedule stays. The budget limits how many ways of repair are tried.
    """
    evaluate = budget.metered(evaluate)
    given = candidate(problem, evaluate, "given", placement)
    return with_repairs(problem, evaluate, [given], _repairs(problem, evaluate, (), budget), budget)[0].placement


def _repairs(problem: Problem, evaluate: Evaluator, schedules: Sequence[Schedule], budget: Budget) -> list[Repair]:
    return [Repair(problem, budget.metered(evaluate), way, schedules, budget) for way in WAYS]


def _exact_limit(budget: Budget, most_s: float) -> Limit | None:
    """The limit of an exact search: `most_s` of work, and under a clock at most half of the time left.

    None if that is less than `LEAST_EXACT_S`.
    """
    if budget.seconds_left is None:
        return Limit(most_s)
    seconds = min(most_s, budget.seconds_left / 2)
    return Limit(seconds, deterministic=False) if seconds >= LEAST_EXACT_S else None


def budget(problem: Problem, seconds: float | None = None, evaluations: int | None = None) -> Budget:
    """The budget of a portfolio. It starts before the lower bound is computed, and ends early at that bound.

    Without `seconds` and `evaluations` it is a number of evaluations that take about ten seconds on a core. The number
    depends on the problem only, not on the machine.
    """
    started = running_s()
    bound_ns = lower_bound(problem)
    if seconds is None and evaluations is None:
        evaluations = max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, SIMULATED_OPS // problem.num_ops))
    return Budget(seconds=seconds, evaluations=evaluations, bound_ns=bound_ns, started=started)


def placements(problem: Problem) -> float:
    """The number of legal placements. Raises ValueError if a colocation group is allowed on no device."""
    # infinite if it exceeds the range of a float
    return prod(allowed(problem, units(problem.graph, "ops")).sum(axis=1).tolist(), start=1.0)


def every_placement(problem: Problem, schedule: Schedule = "critical-path") -> Iterator[Placement]:
    """All legal placements under a schedule, in lexicographic order of devices."""
    closure = units(problem.graph, "ops")
    options = [np.flatnonzero(row).tolist() for row in allowed(problem, closure)]
    for devices in product(*options):
        yield Placement(expand(closure, np.array(devices, dtype=np.int32)), schedule)


def enumerated(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The fastest legal placement under a schedule; the first on a tie.

    Raises ValueError if a group is allowed on no device.
    """
    every, best = every_placement(problem, schedule), list[Placement]()
    while batch := list(islice(every, BATCH)):
        best = [fastest(problem, [*best, *batch], evaluate)]
    return best[0]
