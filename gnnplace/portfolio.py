"""The portfolio behind `best`: all planners, repairs, an exact search of small problems, and searches that go on from the best few.

Searches rank moves by the learned ranking that comes with the package, unless they are told not to. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np

from gnnplace import package_data, planners
from gnnplace.baselines.annealing import Found, annealing
from gnnplace.baselines.best import (
    FOR_ORDER,
    FOR_PLANNERS,
    Progress,
    Winner,
    best,
    improvements,
    judged,
    searched,
    searched_from_few,
    with_repairs,
)
from gnnplace.baselines.best_stages import best_stages, with_best_stages
from gnnplace.baselines.enumeration import enumerated, placements
from gnnplace.baselines.exact import MAX_CHOICES, Limit, exact
from gnnplace.baselines.improve import improve
from gnnplace.baselines.near_modules import with_nearest_modules
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.reorder import reordered
from gnnplace.baselines.repair import WAYS, Repair
from gnnplace.baselines.searching.budget import Budget, Counted, Watched
from gnnplace.baselines.searching.clock import running_s
from gnnplace.baselines.staged import planned_stages, staged
from gnnplace.bounds.bounds import least_times, lower_bound
from gnnplace.choices import SEARCH, SearchName
from gnnplace.constraints import Stages
from gnnplace.moves.ranking import Ranking, read_ranking
from gnnplace.placement import Placement, Schedule, rule_of
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, Planner

SHIPPED = package_data.folder("checkpoints") / "improver.safetensors"  # trained on all lineages
HELD_OUT = SHIPPED.with_stem("improver-held-out")  # on those of the training and validation split, for claims about the others
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
) -> Winner:
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
    said, evaluate, progress, rule = progress, Watched(evaluate, budget), improvements(progress), rule_of(schedule)
    counted, small = Counted(evaluate, budget), problem.num_ops * problem.num_devices <= MAX_CHOICES
    tried, repaired = None, False
    if starts is None and policy is None and (stages is None or not stages.binding):
        tried = _best_of_all(problem, counted, budget, rule, progress)
    if tried is not None:
        winners = [tried]
    else:
        starts = _starts(problem, counted, seed, rule, stages) if starts is None else starts
        starts = starts if policy is None else {**starts, "policy": staged(policy, stages)}
        if stages is not None and stages.binding:
            return best_stages(problem, stages, evaluate, seed, budget, schedule, starts, progress)
        winners, repaired = _proposed(problem, evaluate, seed, budget, schedule, starts, progress, stages)
    for_order = FOR_ORDER * (1 - budget.used) if repaired else FOR_ORDER  # repairs leave less to both searches
    before = budget if schedule == rule else budget.until(1 - for_order)
    counted = Counted(evaluate, before)
    if tried is None:
        if small:
            solved = partial(_solved, evaluate=evaluate, said=said, most_s=planners.EXACT_S, schedule=rule)
            winners[0] = searched(problem, counted, winners[0], "exact", solved, before, progress)
        ranks: Sequence[Rank] = [path_estimate] if search == "plain" else [shipped(), path_estimate]
        climbed = partial(_climbed, evaluate=evaluate, seed=seed, ranks=ranks)
        annealed = partial(_annealed, evaluate=evaluate, seed=seed)
        winners = [searched_from_few(problem, counted, winners, ("ranked-climb", climbed), ("annealing", annealed), before, progress)]
    winner = winners[0]
    if schedule == rule:
        return winner
    budget.spent = before.spent
    ordered = partial(_solved, said=said, most_s=ORDER_S, schedule=schedule) if small else partial(reordered, seed=seed)
    return searched(problem, Counted(evaluate, budget), winner, "order", partial(ordered, evaluate=evaluate), budget, progress)


def _best_of_all(problem: Problem, evaluate: Evaluator, budget: Budget, schedule: Schedule, progress: Progress) -> Winner | None:
    """The best of all legal placements; None where they are too many for half of the budget, or none of them fits."""
    number, part = placements(problem), budget.left(FOR_PLANNERS)
    too_short = part.seconds_left is not None and part.seconds_left < LEAST_EXACT_S
    if number * problem.num_ops > ENUMERATED_OPS or too_short or part.allows(int(number)) < number:
        return None
    winner = judged(problem, evaluate, f"all {number:,.0f} placements", enumerated(problem, evaluate, schedule=schedule))
    progress(winner.planner, winner.score)
    return winner if winner.score.feasibility == FEASIBLE else None


def _proposed(
    problem: Problem,
    evaluate: Evaluator,
    seed: int,
    budget: Budget,
    schedule: Schedule,
    starts: Mapping[str, Planner],
    progress: Progress,
    stages: Stages | None,
) -> tuple[list[Winner], bool]:
    """What planners propose, the nearest whole modules, stages where there are some, and repairs, best first; whether any is a repair."""
    counted, rule = Counted(evaluate, budget), rule_of(schedule)
    winners = with_nearest_modules(problem, counted, best(problem, counted, starts, budget, progress), budget, progress)
    if stages is not None and budget.allows(1):
        winners = with_best_stages(problem, evaluate, stages, seed, budget, rule, winners, progress)
    repairs = _repairs(problem, evaluate, [rule] if schedule == rule else [rule, "memory"], budget)
    found = with_repairs(problem, evaluate, winners, repairs, budget, progress)
    return found, len(found) > len(winners)


def _starts(problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule, stages: Stages | None) -> dict[str, Planner]:
    """All planners but searches by name, with the one of `stages` where these are binding."""
    named = planners.planners(problem, evaluate, seed, schedule)
    kept = {name: plan for name, plan in named.items() if name not in planners.SEARCHES}
    return with_stages(problem, stages, kept, evaluate, schedule) if stages is not None and stages.binding else kept


def with_stages(
    problem: Problem, stages: Stages | None, named: Mapping[str, Planner], evaluate: Evaluator, schedule: Schedule
) -> dict[str, Planner]:
    """Planners by name, and `stages`, which plans these, where there are any; where they are binding, the others but searches are followed
    by the nearest stages to what they propose.
    """
    if stages is None:
        return dict(named)
    own: Planner = partial(planned_stages, evaluate=evaluate, stages=stages, schedule=rule_of(schedule))
    kept = [name for name in named if not stages.binding or name not in planners.SEARCHES]
    return {"stages": own} | {name: staged(named[name], stages) for name in kept}


def repaired(problem: Problem, evaluate: Evaluator, placement: Placement, budget: Budget) -> Placement:
    """A placement that overflows as the best of all repairs makes it, which may overflow less and still; one that fits as it is.

    The schedule stays. Of the ways of a repair, more are tried where the budget allows it.
    """
    evaluate = Watched(evaluate, budget)
    given = judged(problem, evaluate, "given", placement)
    return with_repairs(problem, evaluate, [given], _repairs(problem, evaluate, (), budget), budget)[0].placement


def _repairs(problem: Problem, evaluate: Evaluator, schedules: Sequence[Schedule], budget: Budget) -> list[Repair]:
    return [Repair(problem, Counted(evaluate, budget), way, schedules, budget) for way in WAYS]


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


def _climbed(
    problem: Problem, start: Placement, budget: Budget, found: Found, *, evaluate: Evaluator, seed: int, ranks: Sequence[Rank]
) -> Placement:
    generator, drawn = np.random.default_rng(seed), LEARNED_DRAWN if len(ranks) > 1 else DRAWN
    return ranked_climb(
        problem, evaluate, generator, start=start, budget=budget, schedule=rule_of(start.schedule), ranks=ranks, drawn=drawn, found=found
    )


def _annealed(problem: Problem, start: Placement, budget: Budget, found: Found, *, evaluate: Evaluator, seed: int) -> Placement:
    generator, schedule = np.random.default_rng(seed), rule_of(start.schedule)
    return annealing(problem, evaluate, generator, start=start, budget=budget, schedule=schedule, found=found)


def _solved(
    problem: Problem,
    start: Placement,
    budget: Budget,
    found: Found,
    *,
    evaluate: Evaluator,
    said: Progress,
    most_s: float,
    schedule: Schedule,
) -> Placement:
    """What an exact search finds; the start where there is no time for one, and where its process dies, which is said."""
    if (limit := _exact_limit(budget, most_s)) is None:
        return start
    try:
        return exact(problem, Counted(evaluate, budget), start=start, least_times=least_times, limit=limit, schedule=schedule)
    except ChildProcessError as error:
        winner = judged(problem, evaluate, f"exact: {error}; it goes on from", start)
        said(winner.planner, winner.score)
        return start


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
