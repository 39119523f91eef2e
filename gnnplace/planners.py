"""Names to planners: with `gnnplace.policies.registry`, the one place where a string becomes a function. Needs no torch.

A new baseline is a name and a `case` here, one that places units a name and a row of `PLACE_UNITS`; contract tests and commands take the
names from `PlannerName`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np

from gnnplace import package_data
from gnnplace.baselines.annealing import Found, annealing, hill_climb
from gnnplace.baselines.best import Progress, Winner, best, improvements, judged, searched, searched_from_few, with_repairs
from gnnplace.baselines.critical_path_first import critical_path_first
from gnnplace.baselines.exact import MAX_CHOICES, Limit, exact
from gnnplace.baselines.expert import expert
from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.genetic import genetic
from gnnplace.baselines.heft import heft
from gnnplace.baselines.improve import improve
from gnnplace.baselines.m_etf import m_etf
from gnnplace.baselines.m_sct import m_sct
from gnnplace.baselines.m_topo import m_topo
from gnnplace.baselines.metis import metis
from gnnplace.baselines.peft import peft
from gnnplace.baselines.pipeline import pipeline
from gnnplace.baselines.random_units import random_units
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.reorder import reorder
from gnnplace.baselines.repair import WAYS, Repair
from gnnplace.baselines.scotch import min_cut, scotch
from gnnplace.baselines.scotch_library import HOW_TO_GET, available
from gnnplace.baselines.searching.budget import Budget, Counted
from gnnplace.baselines.single import single_cpu, single_gpu
from gnnplace.bounds.bounds import least_times
from gnnplace.formats import strict_json
from gnnplace.moves.ranking import Ranking, read_ranking
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.units.units import UnitsName

UnitPlannerName = Literal["heft", "peft", "critical-path-first", "m-topo", "m-etf", "m-sct", "metis", "scotch", "min-cut"]  # slow last
PlannerName = Literal[
    "cpu", "gpu", "expert", "pipeline",
    UnitPlannerName,
    "random", "hill-climb", "ranked-climb", "annealing", "genetic", "exact",
]  # fmt: skip
SEARCHES: tuple[PlannerName, ...] = ("random", "hill-climb", "ranked-climb", "annealing", "genetic", "exact")  # take what they are given
SCOTCH: tuple[PlannerName, ...] = ("scotch", "min-cut")  # need a library that is not Python's
UNITS: tuple[UnitsName, ...] = get_args(UnitsName)

SearchName = Literal["learned", "plain"]
SEARCH: SearchName = "learned"
SHIPPED = package_data.folder("checkpoints") / "improver.safetensors"
LEARNED_DRAWN = 300  # moves drawn where a learned ranking chooses among them

RANDOM_EVALUATIONS = 64
SEARCH_EVALUATIONS = 500
FOR_ORDER = 0.3  # of a budget, its end: the order of ops, where it is free
EXACT_S, ORDER_S, LEAST_EXACT_S = 3.0, 10.0, 1.0  # of CP-SAT's work; of a clock's budget at least so much, to start it
LEAST_EVALUATIONS, MOST_EVALUATIONS, SIMULATED_OPS = 300, 5000, 4 * 10**7


def planners(problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path") -> dict[str, Planner]:
    """Every baseline that a problem's cluster and this machine allow, by name: `cpu` needs a CPU, `SCOTCH` its library."""
    absent = [*missing()] + ([] if any(device.kind == "cpu" for device in problem.cluster.devices) else ["cpu"])
    names: tuple[PlannerName, ...] = get_args(PlannerName)
    return {name: planner(name, evaluate, seed, schedule) for name in names if name not in absent}


def missing() -> dict[str, str]:
    """The planners whose library is not installed here, and how to get it."""
    return {} if available() else dict.fromkeys(SCOTCH, HOW_TO_GET)


def planner(name: PlannerName, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path") -> Planner:
    """The baseline of a name; searches draw from `seed`, the others are deterministic. What places units is the best of all `UNITS`.

    With the schedule `given`, `genetic` and `exact` propose priorities; the others plan for the schedule of the critical path.
    """
    rule = _rule(schedule)
    match name:
        case "cpu":
            return partial(single_cpu, evaluate=evaluate, schedule=rule)
        case "gpu":
            return partial(single_gpu, evaluate=evaluate, schedule=rule)
        case "expert":
            return partial(expert, evaluate=evaluate, schedule=rule)
        case "pipeline":
            return partial(pipeline, evaluate=evaluate, schedule=rule)
        case "random":
            return partial(_random, evaluate=evaluate, seed=seed, schedule=rule)
        case "hill-climb":
            return _from_best_heuristic(hill_climb, evaluate, seed, rule)
        case "ranked-climb":
            return _from_best_heuristic(ranked_climb, evaluate, seed, rule)
        case "annealing":
            return _from_best_heuristic(annealing, evaluate, seed, rule)
        case "genetic":
            return _from_best_heuristic(genetic, evaluate, seed, schedule)
        case "exact":
            return partial(exact, evaluate=evaluate, least_times=least_times, limit=Limit(EXACT_S), schedule=schedule)
        case _:
            return partial(_on_units, baseline=PLACE_UNITS[name], evaluate=evaluate, schedule=rule)


def planner_named(name: str, problem: Problem, evaluate: Evaluator, seed: int) -> Planner:
    """The baseline that a user names. Raises ValueError with the names that the problem's cluster allows."""
    named = planners(problem, evaluate, seed)
    if name in missing():
        raise ValueError(f"planner {name!r}: {missing()[name]}")
    if name not in named:
        raise ValueError(strict_json.unknown("planner", name, tuple(named)))
    return named[name]


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
) -> Winner:
    """All planners but searches, single devices first, then a policy's placement if there is one, and searches from the best few.

    A small problem is searched exactly. Then a climb over ranked moves goes on from the best few, and annealing from the best of these.
    With the schedule `given`, all of them plan for that of the critical path, and the last of the budget goes to a search for a faster
    order. `starts`, where they are given, are asked instead of all planners. Progress is what is better than all before. A "learned"
    search ranks moves by the shipped checkpoint and by `path_estimate` in turns, a "plain" one by the latter alone.
    """
    progress = improvements(progress)
    rule, small = _rule(schedule), problem.num_ops * problem.num_devices <= MAX_CHOICES
    counted = Counted(evaluate, budget)
    if starts is None:
        starts = {name: plan for name, plan in planners(problem, counted, seed, rule).items() if name not in SEARCHES}
    winners = best(problem, counted, {**starts} if policy is None else {**starts, "policy": policy}, budget, progress)
    repairs = _repairs(problem, evaluate, [rule] if schedule == rule else [rule, "memory"], budget)
    found, winners = len(winners), with_repairs(problem, evaluate, winners, repairs, budget, progress)
    for_order = FOR_ORDER * (1 - budget.used) if len(winners) > found else FOR_ORDER  # repairs leave less to both searches
    before = budget if schedule == rule else budget.until(1 - for_order)
    counted = Counted(evaluate, before)
    if small:
        solved = partial(_solved, evaluate=evaluate, most_s=EXACT_S, schedule=rule)
        winners[0] = searched(problem, counted, winners[0], "exact", solved, before, progress)
    ranks: Sequence[Rank] = [path_estimate] if search == "plain" else [shipped(), path_estimate]
    climbed = partial(_climbed, evaluate=evaluate, seed=seed, ranks=ranks)
    annealed = partial(_annealed, evaluate=evaluate, seed=seed)
    winner = searched_from_few(problem, counted, winners, ("ranked-climb", climbed), ("annealing", annealed), before, progress)
    if schedule == rule:
        return winner
    budget.spent = before.spent
    ordered = partial(_solved, most_s=ORDER_S, schedule=schedule) if small else partial(_reordered, seed=seed)
    return searched(problem, Counted(evaluate, budget), winner, "order", partial(ordered, evaluate=evaluate), budget, progress)


def repaired(problem: Problem, evaluate: Evaluator, placement: Placement, budget: Budget) -> Placement:
    """A placement that overflows as the best of all repairs makes it, which may overflow less and still; one that fits as it is.

    The schedule stays. Of the ways of a repair, more are tried where the budget allows it.
    """
    given = judged(problem, evaluate, "given", placement)
    return with_repairs(problem, evaluate, [given], _repairs(problem, evaluate, (), budget), budget)[0].placement


def _repairs(problem: Problem, evaluate: Evaluator, schedules: Sequence[Schedule], budget: Budget) -> list[Repair]:
    return [Repair(problem, Counted(evaluate, budget), way, schedules, budget) for way in WAYS]


def improved(problem: Problem, evaluate: Evaluator, rank: Rank, seed: int, budget: Budget, start: Placement | None = None) -> Placement:
    """The placement that a learned ranking of moves makes of `start`, or of random list schedules, beside `path_estimate`."""
    schedule: Schedule = "critical-path" if start is None else _rule(start.schedule)
    return improve(
        problem, evaluate, np.random.default_rng(seed), budget=budget, start=start, schedule=schedule, ranks=(rank, path_estimate),
        drawn=LEARNED_DRAWN,
    )  # fmt: skip


@cache
def shipped() -> Ranking:
    """The learned ranking that comes with the package. Raises ValueError (one line) where its file is damaged or of another version."""
    return read_ranking(SHIPPED)


def _climbed(
    problem: Problem, start: Placement, budget: Budget, found: Found, *, evaluate: Evaluator, seed: int, ranks: Sequence[Rank]
) -> Placement:
    generator, drawn = np.random.default_rng(seed), LEARNED_DRAWN if len(ranks) > 1 else DRAWN
    return ranked_climb(
        problem, evaluate, generator, start=start, budget=budget, schedule=_rule(start.schedule), ranks=ranks, drawn=drawn, found=found
    )


def _annealed(problem: Problem, start: Placement, budget: Budget, found: Found, *, evaluate: Evaluator, seed: int) -> Placement:
    generator, schedule = np.random.default_rng(seed), _rule(start.schedule)
    return annealing(problem, evaluate, generator, start=start, budget=budget, schedule=schedule, found=found)


def _solved(
    problem: Problem, start: Placement, budget: Budget, found: Found, *, evaluate: Evaluator, most_s: float, schedule: Schedule
) -> Placement:
    if (limit := _exact_limit(budget, most_s)) is None:
        return start
    return exact(problem, Counted(evaluate, budget), start=start, least_times=least_times, limit=limit, schedule=schedule)


def _exact_limit(budget: Budget, most_s: float) -> Limit | None:
    """So much work; under a clock at most half of the time that is left, and none at all where that is too little."""
    if budget.seconds_left is None:
        return Limit(most_s)
    seconds = min(most_s, budget.seconds_left / 2)
    return Limit(seconds, deterministic=False) if seconds >= LEAST_EXACT_S else None


def _reordered(problem: Problem, start: Placement, budget: Budget, found: Found, *, evaluate: Evaluator, seed: int) -> Placement:
    return reorder(problem, evaluate, np.random.default_rng(seed), start=start, budget=budget)


def _rule(schedule: Schedule) -> Schedule:
    """The schedule that planners without priorities plan for."""
    return "critical-path" if schedule == "given" else schedule


def budget(problem: Problem, seconds: float | None = None, evaluations: int | None = None) -> Budget:
    """The budget of a portfolio. Where neither is given: evaluations that take some ten seconds on a core, the same on every machine."""
    if seconds is None and evaluations is None:
        evaluations = max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, SIMULATED_OPS // problem.num_ops))
    return Budget(seconds=seconds, evaluations=evaluations)


def best_heuristic(problem: Problem, evaluate: Evaluator, schedule: Schedule = "critical-path") -> Placement:
    """The fastest placement of all planners but searches."""
    named = planners(problem, evaluate, 0, schedule)
    return fastest(problem, [plan(problem) for name, plan in named.items() if name not in SEARCHES], evaluate)


@runtime_checkable
class _PlacesUnits(Protocol):
    """A baseline that places units of any name."""

    def __call__(self, problem: Problem, evaluate: Evaluator, *, units_name: UnitsName, schedule: Schedule) -> Placement: ...


PLACE_UNITS: dict[UnitPlannerName, _PlacesUnits] = {
    "scotch": scotch, "min-cut": min_cut, "metis": metis,
    "heft": heft, "peft": peft, "critical-path-first": critical_path_first, "m-topo": m_topo, "m-etf": m_etf, "m-sct": m_sct,
}  # fmt: skip


def _on_units(problem: Problem, baseline: _PlacesUnits, evaluate: Evaluator, schedule: Schedule) -> Placement:
    found = [baseline(problem, evaluate, units_name=name, schedule=schedule) for name in UNITS]
    return fastest(problem, found, evaluate)


def _random(problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule) -> Placement:
    return random_units(problem, evaluate, np.random.default_rng(seed), evaluations=RANDOM_EVALUATIONS, schedule=schedule)


def _from_best_heuristic(search: Callable[..., Placement], evaluate: Evaluator, seed: int, schedule: Schedule) -> Planner:
    """A search of `SEARCH_EVALUATIONS` from the best heuristic, so that it is never worse."""

    def plan(problem: Problem) -> Placement:
        start, generator = best_heuristic(problem, evaluate, schedule), np.random.default_rng(seed)
        return search(problem, evaluate, generator, start=start, budget=Budget(evaluations=SEARCH_EVALUATIONS), schedule=schedule)

    return plan
