"""The portfolio behind `best`: all planners, repairs, an exact search of small problems, and searches that go on from the best few.

Searches rank moves by the learned ranking that comes with the package, unless they are told not to. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from gnnplace import package_data
from gnnplace.baselines.annealing import Found, annealing
from gnnplace.baselines.cp_sat.exact import MAX_CHOICES, Limit, Proved, exact
from gnnplace.baselines.improve import improve
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.reorder import reordered
from gnnplace.baselines.repairing.repair import WAYS, Repair
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.clock import running_s
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.bounds.bounds import least_times, lower_bound
from gnnplace.choices import SEARCH, SearchName
from gnnplace.constraints import Stages
from gnnplace.moves.ranking import Ranking, read_ranking
from gnnplace.placement import Placement, Schedule, rule_of
from gnnplace.portfolio import planners
from gnnplace.portfolio.candidates import Candidate, candidate
from gnnplace.portfolio.enumeration import enumerated, placements
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

SHIPPED = package_data.folder("checkpoints") / "improver.safetensors"  # trained on all lineages
HELD_OUT = SHIPPED.with_stem("improver-held-out")  # on those of the training and validation split, for claims about the others
CLIMBED = 400  # evaluations in which a climb gains more than annealing does; seconds are worth more to annealing, which chooses faster
LEARNED_DRAWN = 300  # moves drawn where a learned ranking chooses among them

ORDER_S, LEAST_EXACT_S = 10.0, 1.0  # of CP-SAT's work; of a clock's budget at least so much, to start it
LEAST_EVALUATIONS, MOST_EVALUATIONS, SIMULATED_OPS = 300, 5000, 4 * 10**7
ENUMERATED_OPS = 4 * 10**6  # ops of all legal placements together, so many at most, where all of them are simulated: about a second


def portfolio(
    problem: Problem,
    evaluate: Evaluator,
    seed: int,
    budget: Budget,
    schedule: Schedule = "critical-path",
    policy: Planner | None = None,
    progress: Progress = lambda planner, score: None,
    starts: Mapping[str, Planner] | None = None,
    search: SearchName = SEARCH,
    stages: Stages | None = None,
) -> Candidate:
    """All planners but searches, single devices first, then a policy's placement if there is one, and searches from the best few.

    The nearest whole modules to the best few are tried too. A small problem is searched exactly. Then a climb over ranked moves goes on
    from the best few, and annealing from the best of these. With the schedule `given`, all of them plan for that of the critical path, and
    the last of the budget goes to a search for a faster order. `starts`, where they are given, are asked instead of all planners. Progress
    is what is better than all before. A "learned" search ranks moves by the shipped checkpoint and by `path_estimate` in turns, a "plain"
    one by the latter alone. Where there are `stages`, which are one way to keep modules whole, a share of the budget searches among them,
    from the nearest to what planners proposed; where they are binding, all of it does. Everything ends once a step takes no longer than the
    budget's bound.

    Where there are few legal placements, all of them are tried instead of asking planners and searching, unless a policy, `starts` or
    binding stages are given; a search for a faster order, with the schedule `given`, is all that can follow.
    """
    run = _Run(problem, evaluate, Rationed(evaluate, budget), seed, budget, schedule, progress, improvements(progress), stages)
    winner = run.best_of_all() if starts is None and policy is None and (stages is None or not stages.binding) else None
    if winner is None:
        starts = run.starts() if starts is None else starts
        starts = starts if policy is None else {**starts, "policy": staged(policy, stages)}
        if stages is not None and stages.binding:
            return best_stages(problem, stages, run.evaluate, seed, budget, schedule, starts, run.progress)
        winner = run.refined(*run.proposed(starts), [path_estimate] if search == "plain" else [shipped(), path_estimate])
    return winner if schedule == run.rule else run.ordered(winner)


@dataclass(frozen=True, eq=False)
class _Run:
    """One run of the portfolio. `progress` is told what is better than all before, `said` whatever is to be said."""

    problem: Problem
    evaluate: Evaluator
    tried: Rationed
    seed: int
    budget: Budget
    schedule: Schedule
    said: Progress
    progress: Progress
    stages: Stages | None

    @property
    def rule(self) -> Schedule:
        """The schedule that planners plan for, and searches but that for an order."""
        return rule_of(self.schedule)

    @property
    def small(self) -> bool:
        """Whether the problem is searched exactly."""
        return self.problem.num_ops * self.problem.num_devices <= MAX_CHOICES

    def best_of_all(self) -> Candidate | None:
        """The best of all legal placements; None where they are too many for half of the budget, or none of them fits."""
        number, part = placements(self.problem), self.budget.left(FOR_PLANNERS)
        too_short = part.seconds_left is not None and part.seconds_left < LEAST_EXACT_S
        if number * self.problem.num_ops > ENUMERATED_OPS or too_short or part.allows(int(number)) < number:
            return None
        metered = self.budget.metered(self.evaluate)
        winner = candidate(self.problem, metered, f"all {number:,.0f} placements", enumerated(self.problem, metered, schedule=self.rule))
        self.progress(winner.planner, winner.score)
        return winner if winner.score.feasibility == FEASIBLE else None

    def starts(self) -> dict[str, Planner]:
        """All planners but searches, with the one of `stages` where these bind; those without a device take time, but few evaluations."""
        named = planners.planners(self.problem, self.tried, self.seed, self.rule)
        kept = {name: plan for name, plan in named.items() if name not in planners.SEARCHES}
        if self.stages and self.stages.binding:
            return planners.with_stages(self.problem, self.stages, kept, self.tried, self.rule)
        return kept if self.budget.evaluations is None else kept | planners.without_one(self.problem, self.tried, self.rule)

    def proposed(self, starts: Mapping[str, Planner]) -> tuple[list[Candidate], bool]:
        """What planners propose, nearest modules, stages where there are some, and repairs, best first; whether any is a repair."""
        problem, budget, tried, progress = self.problem, self.budget, self.tried, self.progress
        winners = with_nearest_modules(problem, tried, best(problem, tried, starts, budget, progress), budget, progress)
        if self.stages is not None and budget.allows(1):
            winners = with_best_stages(problem, self.evaluate, self.stages, self.seed, budget, self.rule, winners, progress)
        repairs = _repairs(problem, self.evaluate, [self.rule] if self.schedule == self.rule else [self.rule, "memory"], budget)
        found = with_repairs(problem, self.evaluate, winners, repairs, budget, progress)
        return found, len(found) > len(winners)

    def refined(self, winners: list[Candidate], repaired: bool, ranks: Sequence[Rank]) -> Candidate:
        """What searches make of the best few winners; the last of the budget is left to that for an order where there is one.

        Where evaluations are counted, a climb goes on from the best of the few, and annealing from there.
        """
        for_order = FOR_ORDER * (1 - self.budget.used) if repaired else FOR_ORDER  # repairs leave less to both
        before = self.budget if self.schedule == self.rule else self.budget.until(1 - for_order)
        if self.small:
            solved = partial(self._solved, most_s=planners.EXACT_S, schedule=self.rule)
            winners = [searched(self.problem, self.evaluate, winners[0], "exact", solved, before, self.progress), *winners[1:]]
        climb, anneal = ("ranked-climb", partial(self._climbed, ranks=ranks)), ("annealing", self._annealed)
        if before.evaluations is not None and (left := before.allows(before.evaluations)):
            first = before.left(min(1.0, CLIMBED / left))
            winners = [searched_from_few(self.problem, self.evaluate, winners, climb, climb, first, self.progress)]
        return searched_from_few(self.problem, self.evaluate, winners, climb, anneal, before, self.progress)

    def ordered(self, winner: Candidate) -> Candidate:
        """What a search for a faster order of the ops makes of a winner."""
        solved: Search = partial(self._solved, most_s=ORDER_S, schedule=self.schedule)
        search = solved if self.small else partial(reordered, evaluate=self.evaluate, seed=self.seed)
        return searched(self.problem, self.evaluate, winner, "order", search, self.budget, self.progress)

    def _climbed(self, problem: Problem, start: Placement, budget: Budget, found: Found, *, ranks: Sequence[Rank]) -> Placement:
        climb = partial(ranked_climb, ranks=ranks, drawn=LEARNED_DRAWN if len(ranks) > 1 else DRAWN, schedule=rule_of(start.schedule))
        return climb(problem, self.evaluate, np.random.default_rng(self.seed), start=start, budget=budget, found=found)

    def _annealed(self, problem: Problem, start: Placement, budget: Budget, found: Found) -> Placement:
        anneal = partial(annealing, schedule=rule_of(start.schedule))
        return anneal(problem, self.evaluate, np.random.default_rng(self.seed), start=start, budget=budget, found=found)

    def _solved(self, problem: Problem, start: Placement, budget: Budget, found: Found, *, most_s: float, schedule: Schedule) -> Placement:
        """What an exact search finds; the start where there is no time for one, and where its process dies, which is said."""
        if (limit := _exact_limit(budget, most_s)) is None:
            return start
        try:
            solved = exact(problem, budget.metered(self.evaluate), start=start, least_times=least_times, limit=limit, schedule=schedule)
        except ChildProcessError as error:
            winner = candidate(problem, self.evaluate, f"exact: {error}; it goes on from", start)
            self.said(winner.planner, winner.score)
            return start
        if isinstance(solved, Proved):
            budget.prove(solved.bound_ns)
        return solved


def repaired(problem: Problem, evaluate: Evaluator, placement: Placement, budget: Budget) -> Placement:
    """A placement that overflows as the best of all repairs makes it, which may overflow less and still; one that fits as it is.

    The schedule stays. Of the ways of a repair, more are tried where the budget allows it.
    """
    evaluate = budget.metered(evaluate)
    given = candidate(problem, evaluate, "given", placement)
    return with_repairs(problem, evaluate, [given], _repairs(problem, evaluate, (), budget), budget)[0].placement


def _repairs(problem: Problem, evaluate: Evaluator, schedules: Sequence[Schedule], budget: Budget) -> list[Repair]:
    return [Repair(problem, budget.metered(evaluate), way, schedules, budget) for way in WAYS]


def improved(problem: Problem, evaluate: Evaluator, rank: Rank, seed: int, budget: Budget, start: Placement | None = None) -> Placement:
    """The placement that a learned ranking of moves makes of `start`, or of random list schedules, beside `path_estimate`."""
    schedule: Schedule = "critical-path" if start is None else rule_of(start.schedule)
    generator, ranks = np.random.default_rng(seed), (rank, path_estimate)
    return improve(problem, evaluate, generator, budget=budget, start=start, schedule=schedule, ranks=ranks, drawn=LEARNED_DRAWN)


def improved_by(search: SearchName, problem: Problem, evaluate: Evaluator, seed: int, budget: Budget, start: Placement) -> Placement:
    """The placement that a search, `learned` or `plain`, makes of `start`, and nothing else."""
    if search == "learned":
        return improved(problem, evaluate, shipped(), seed, budget, start)
    return improve(problem, evaluate, np.random.default_rng(seed), budget=budget, start=start, schedule=rule_of(start.schedule))


@cache
def shipped() -> Ranking:
    """The learned ranking that comes with the package. Raises ValueError (one line) where its file is damaged or of another version."""
    return read_ranking(SHIPPED)


def _exact_limit(budget: Budget, most_s: float) -> Limit | None:
    """So much work; under a clock at most half of the time that is left, and none at all where that is too little."""
    if budget.seconds_left is None:
        return Limit(most_s)
    seconds = min(most_s, budget.seconds_left / 2)
    return Limit(seconds, deterministic=False) if seconds >= LEAST_EXACT_S else None


def budget(problem: Problem, seconds: float | None = None, evaluations: int | None = None) -> Budget:
    """The budget of a portfolio, which counts from now on, the lower bound included, and ends early where a step reaches that bound.

    Where neither is given: evaluations that take some ten seconds on a core, the same on every machine.
    """
    started = running_s()
    bound_ns = lower_bound(problem)
    if seconds is None and evaluations is None:
        evaluations = max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, SIMULATED_OPS // problem.num_ops))
    return Budget(seconds=seconds, evaluations=evaluations, bound_ns=bound_ns, started=started)
