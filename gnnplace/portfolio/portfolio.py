"""The portfolio behind `best`: all planners, repairs, an exact search of small problems, and searches that go on from
the best few.

Searches rank moves by the learned ranking that comes with the package, unless they are told not to. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, product
from math import prod

import numpy as np

from gnnplace import package_data
from gnnplace.baselines.annealing import Report, annealing
from gnnplace.baselines.cp_sat.exact import MAX_CHOICES, Limit, Proved, exact
from gnnplace.baselines.improve import improve
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.reorder import reordered
from gnnplace.baselines.repairing.repair import WAYS, Repair
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.clock import running_s
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.baselines.single import fastest
from gnnplace.bounds.bounds import least_times, lower_bound
from gnnplace.choices import SEARCH, SearchName
from gnnplace.constraints import Stages
from gnnplace.moves.ranking import Ranking, read_ranking
from gnnplace.placement import Placement, Schedule, rule_of, scheduled
from gnnplace.portfolio import planners
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
from gnnplace.portfolio.stages import best_stages, staged, with_best_stages
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, Planner
from gnnplace.units.units import allowed, expand, units

SHIPPED = package_data.folder("checkpoints") / "improver.safetensors"  # trained on all lineages
# on those of the training and validation split, for claims about the others
HELD_OUT = SHIPPED.with_stem("improver-held-out")
# evaluations in which a climb gains more than annealing does; seconds are worth more to annealing, which chooses faster
CLIMBED = 400
LEARNED_DRAWN = 300  # moves drawn where a learned ranking chooses among them

ORDER_S, LEAST_EXACT_S = 10.0, 1.0  # of CP-SAT's work; of a clock's budget at least so much, to start it
LEAST_EVALUATIONS, MOST_EVALUATIONS, SIMULATED_OPS = 300, 5000, 4 * 10**7
# ops of all legal placements together, so many at most, where all of them are simulated: about a second
ENUMERATED_OPS = 4 * 10**6


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """How `best` searches.

    With the schedule `given`, planners and searches plan for that of the critical path, and the last of the budget goes
    to a search for a faster order. A "learned" `search` ranks moves by the shipped checkpoint and by `path_estimate` in
    turns, a "plain" one by the latter alone. A `policy` is asked beside the planners, `starts` instead of them. Where
    there are `stages`, which are one way to keep modules whole, a share of the budget searches among them, from the
    nearest to what planners proposed; where they are binding, all of it does. `progress` is told what is better than
    all before.
    """

    seed: int = 0
    schedule: Schedule = "given"
    search: SearchName = SEARCH
    policy: Planner | None = None
    starts: Mapping[str, Planner] | None = None
    stages: Stages | None = None
    progress: Progress = lambda planner, score: None


USUAL = Options()


def portfolio(problem: Problem, evaluate: Evaluator, budget: Budget, options: Options = USUAL) -> Candidate:
    """All planners but searches, single devices first, then a policy's placement if there is one, and searches from the
    best few.

    The nearest whole modules to the best few are tried too. A small problem is searched exactly. Then a climb over
    ranked moves goes on from the best few, and annealing from the best of these. Everything ends once a step takes no
    longer than the budget's bound.

    Where there are few legal placements, all of them are tried instead of asking planners and searching, unless a
    policy, `starts` or binding stages are given; a search for a faster order, with the schedule `given`, is all that
    can follow.
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
        winner = run.refined(
            *run.proposed(starts), [path_estimate] if options.search == "plain" else [shipped(), path_estimate]
        )
    return winner if options.schedule == run.rule else run.ordered(winner)


@dataclass(frozen=True, eq=False)
class _Run:
    """One run of the portfolio.

    `progress` is told what is better than all before, that of the options whatever is to be said.
    """

    problem: Problem
    evaluate: Evaluator
    tried: Rationed
    budget: Budget
    options: Options
    progress: Progress

    @property
    def rule(self) -> Schedule:
        """The schedule that planners plan for, and searches but that for an order."""
        return rule_of(self.options.schedule)

    def policy(self, problem: Problem) -> Placement:
        """What the policy of the options proposes, under their schedule."""
        assert self.options.policy is not None
        return planned(self.options.policy(problem), self.options.schedule)

    @property
    def small(self) -> bool:
        """Whether the problem is searched exactly."""
        return self.problem.num_ops * self.problem.num_devices <= MAX_CHOICES

    def best_of_all(self) -> Candidate | None:
        """The best of all legal placements; None where they are too
        many for half of the budget, or none of them fits.
        """
        number, part = placements(self.problem), self.budget.left(FOR_PLANNERS)
        too_short = part.seconds_left is not None and part.seconds_left < LEAST_EXACT_S
        if number * self.problem.num_ops > ENUMERATED_OPS or too_short or part.allows(int(number)) < number:
            return None
        metered = self.budget.metered(self.evaluate)
        winner = candidate(
            self.problem,
            metered,
            f"all {number:,.0f} placements",
            enumerated(self.problem, metered, schedule=self.rule),
        )
        self.progress(winner.planner, winner.score)
        return winner if winner.score.feasibility == FEASIBLE else None

    def starts(self) -> dict[str, Planner]:
        """All planners but searches, with the one of `stages` where these
        bind; those without a device take time, but few evaluations.
        """
        named = planners.planners(self.problem, self.tried, self.options.seed, self.rule)
        kept = {name: plan for name, plan in named.items() if name not in planners.SEARCHES}
        if self.options.stages and self.options.stages.binding:
            return planners.with_stages(self.problem, self.options.stages, kept, self.tried, self.rule)
        return (
            kept
            if self.budget.evaluations is None
            else kept | planners.without_one(self.problem, self.tried, self.rule)
        )

    def proposed(self, starts: Mapping[str, Planner]) -> tuple[list[Candidate], bool]:
        """What planners propose, nearest modules, stages where there are
        some, and repairs, best first; whether any is a repair.
        """
        problem, budget, tried, progress = self.problem, self.budget, self.tried, self.progress
        winners = with_nearest_modules(problem, tried, best(problem, tried, starts, budget, progress), budget, progress)
        if self.options.stages is not None and budget.allows(1):
            winners = with_best_stages(
                problem, self.evaluate, self.options.stages, self.options.seed, budget, self.rule, winners, progress
            )
        repairs = _repairs(
            problem, self.evaluate, [self.rule] if self.options.schedule == self.rule else [self.rule, "memory"], budget
        )
        proposals = with_repairs(problem, self.evaluate, winners, repairs, budget, progress)
        return proposals, len(proposals) > len(winners)

    def refined(self, winners: list[Candidate], repaired: bool, ranks: Sequence[Rank]) -> Candidate:
        """What searches make of the best few winners; the last of the budget is left to that for an order where there
        is one.

        Where evaluations are counted, a climb goes on from the best of the few, and annealing from there.
        """
        for_order = FOR_ORDER * (1 - self.budget.used) if repaired else FOR_ORDER  # repairs leave less to both
        before = self.budget if self.options.schedule == self.rule else self.budget.until(1 - for_order)
        if self.small:
            solved = partial(self._solved, most_s=planners.EXACT_S, schedule=self.rule)
            winners = [
                searched(self.problem, self.evaluate, winners[0], "exact", solved, before, self.progress),
                *winners[1:],
            ]
        climb, anneal = ("ranked-climb", partial(self._climbed, ranks=ranks)), ("annealing", self._annealed)
        if before.evaluations is not None and (left := before.allows(before.evaluations)):
            first = before.left(min(1.0, CLIMBED / left))
            winners = [searched_from_few(self.problem, self.evaluate, winners, climb, climb, first, self.progress)]
        return searched_from_few(self.problem, self.evaluate, winners, climb, anneal, before, self.progress)

    def ordered(self, winner: Candidate) -> Candidate:
        """What a search for a faster order of the ops makes of a winner."""
        solved: Search = partial(self._solved, most_s=ORDER_S, schedule=self.options.schedule)
        search = solved if self.small else partial(reordered, evaluate=self.evaluate, seed=self.options.seed)
        return searched(self.problem, self.evaluate, winner, "order", search, self.budget, self.progress)

    def _climbed(
        self, problem: Problem, start: Placement, budget: Budget, report: Report, *, ranks: Sequence[Rank]
    ) -> Placement:
        climb = partial(
            ranked_climb,
            ranks=ranks,
            drawn=LEARNED_DRAWN if len(ranks) > 1 else DRAWN,
            schedule=rule_of(start.schedule),
        )
        return climb(
            problem, self.evaluate, np.random.default_rng(self.options.seed), start=start, budget=budget, report=report
        )

    def _annealed(self, problem: Problem, start: Placement, budget: Budget, report: Report) -> Placement:
        anneal = partial(annealing, schedule=rule_of(start.schedule))
        return anneal(
            problem, self.evaluate, np.random.default_rng(self.options.seed), start=start, budget=budget, report=report
        )

    def _solved(
        self, problem: Problem, start: Placement, budget: Budget, report: Report, *, most_s: float, schedule: Schedule
    ) -> Placement:
        """What an exact search finds; the start where there is no time
        for one, and where its process dies, which is said.
        """
        if (limit := _exact_limit(budget, most_s)) is None:
            return start
        try:
            solved = exact(
                problem,
                budget.metered(self.evaluate),
                start=start,
                least_times=least_times,
                limit=limit,
                schedule=schedule,
            )
        except ChildProcessError as error:
            winner = candidate(problem, self.evaluate, f"exact: {error}; it goes on from", start)
            self.options.progress(winner.planner, winner.score)
            return start
        if isinstance(solved, Proved):
            budget.prove(solved.bound_ns)
        return solved


def planned(placement: Placement, schedule: Schedule) -> Placement:
    """What a planner proposed, under a schedule; where that is `given`, in
    its own order or under the schedule that it planned for.
    """
    return placement if schedule == "given" else scheduled(placement, schedule)


def repaired(problem: Problem, evaluate: Evaluator, placement: Placement, budget: Budget) -> Placement:
    """A placement that overflows as the best of all repairs makes it, which may overflow less and still; one that fits
    as it is.

    The schedule stays. Of the ways of a repair, more are tried where the budget allows it.
    """
    evaluate = budget.metered(evaluate)
    given = candidate(problem, evaluate, "given", placement)
    return with_repairs(problem, evaluate, [given], _repairs(problem, evaluate, (), budget), budget)[0].placement


def _repairs(problem: Problem, evaluate: Evaluator, schedules: Sequence[Schedule], budget: Budget) -> list[Repair]:
    return [Repair(problem, budget.metered(evaluate), way, schedules, budget) for way in WAYS]


def improved(
    problem: Problem, evaluate: Evaluator, rank: Rank, seed: int, budget: Budget, start: Placement | None = None
) -> Placement:
    """The placement that a learned ranking of moves makes of `start`, or
    of random list schedules, beside `path_estimate`.
    """
    schedule: Schedule = "critical-path" if start is None else rule_of(start.schedule)
    generator, ranks = np.random.default_rng(seed), (rank, path_estimate)
    return improve(
        problem, evaluate, generator, budget=budget, start=start, schedule=schedule, ranks=ranks, drawn=LEARNED_DRAWN
    )


def improved_by(
    search: SearchName, problem: Problem, evaluate: Evaluator, seed: int, budget: Budget, start: Placement
) -> Placement:
    """The placement that a search, `learned` or `plain`, makes of `start`, and nothing else."""
    if search == "learned":
        return improved(problem, evaluate, shipped(), seed, budget, start)
    return improve(
        problem, evaluate, np.random.default_rng(seed), budget=budget, start=start, schedule=rule_of(start.schedule)
    )


@cache
def shipped() -> Ranking:
    """The learned ranking that comes with the package.

    Raises ValueError (one line) where its file is damaged or of another version.
    """
    return read_ranking(SHIPPED)


def _exact_limit(budget: Budget, most_s: float) -> Limit | None:
    """So much work; under a clock at most half of the time that is left, and none at all where that is too little."""
    if budget.seconds_left is None:
        return Limit(most_s)
    seconds = min(most_s, budget.seconds_left / 2)
    return Limit(seconds, deterministic=False) if seconds >= LEAST_EXACT_S else None


def budget(problem: Problem, seconds: float | None = None, evaluations: int | None = None) -> Budget:
    """The budget of a portfolio, which counts from now on, the lower bound included, and ends early where a step
    reaches that bound.

    Where neither is given: evaluations that take some ten seconds on a core, the same on every machine.
    """
    started = running_s()
    bound_ns = lower_bound(problem)
    if seconds is None and evaluations is None:
        evaluations = max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, SIMULATED_OPS // problem.num_ops))
    return Budget(seconds=seconds, evaluations=evaluations, bound_ns=bound_ns, started=started)


BATCH = 1024  # placements evaluated together


def placements(problem: Problem) -> float:
    """How many legal placements there are. Raises ValueError where a colocation group is allowed on no device."""
    # infinite where a float can't count them
    return prod(allowed(problem, units(problem.graph, "ops")).sum(axis=1).tolist(), start=1.0)


def every_placement(problem: Problem, schedule: Schedule = "critical-path") -> Iterator[Placement]:
    """All legal placements under a schedule, those on early devices first."""
    closure = units(problem.graph, "ops")
    options = [np.flatnonzero(row).tolist() for row in allowed(problem, closure)]
    for devices in product(*options):
        yield Placement(expand(closure, np.array(devices, dtype=np.int32)), schedule)


def enumerated(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The fastest legal placement under a schedule; the first on a tie.

    Raises ValueError where a group is allowed on no device.
    """
    every, best = every_placement(problem, schedule), list[Placement]()
    while batch := list(islice(every, BATCH)):
        best = [fastest(problem, [*best, *batch], evaluate)]
    return best[0]
