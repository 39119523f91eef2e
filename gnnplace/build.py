"""Names to planners: with `gnnplace.build_policy`, the one place where a string becomes a function. Needs no torch.

A new baseline is a name and a `case` here, one that places units a name and a row of `PLACE_UNITS`; contract tests and commands take the
names from `PlannerName`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np

from gnnplace.baselines.annealing import annealing, hill_climb
from gnnplace.baselines.best import Progress, Winner, best
from gnnplace.baselines.budget import Budget, Counted
from gnnplace.baselines.critical_path_first import critical_path_first
from gnnplace.baselines.exact import exact
from gnnplace.baselines.expert import expert
from gnnplace.baselines.fastest import Standing, fastest
from gnnplace.baselines.heft import heft
from gnnplace.baselines.m_etf import m_etf
from gnnplace.baselines.m_sct import m_sct
from gnnplace.baselines.m_topo import m_topo
from gnnplace.baselines.metis import metis
from gnnplace.baselines.peft import peft
from gnnplace.baselines.pipeline import pipeline
from gnnplace.baselines.random_units import random_units
from gnnplace.baselines.scotch import min_cut, scotch
from gnnplace.baselines.scotch_library import HOW_TO_GET, available
from gnnplace.baselines.single import single_cpu, single_gpu
from gnnplace.config.policies import UnitsName
from gnnplace.frontends import strict_json
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator, Planner

UnitPlannerName = Literal["scotch", "min-cut", "metis", "heft", "peft", "critical-path-first", "m-topo", "m-etf", "m-sct"]
PlannerName = Literal[
    "cpu", "gpu", "expert", "pipeline",
    UnitPlannerName,
    "random", "hill-climb", "annealing", "exact",
]  # fmt: skip
SEARCHES: tuple[PlannerName, ...] = ("random", "hill-climb", "annealing", "exact")  # take as long as they are given
SCOTCH: tuple[PlannerName, ...] = ("scotch", "min-cut")  # need a library that is not Python's
UNITS: tuple[UnitsName, ...] = get_args(UnitsName)

RANDOM_EVALUATIONS = 64
SEARCH_EVALUATIONS = 500
EXACT_S = 5.0
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
    """The baseline of a name; searches draw from `seed`, the others are deterministic. What places units is the best of all `UNITS`."""
    match name:
        case "cpu":
            return partial(single_cpu, evaluate=evaluate, schedule=schedule)
        case "gpu":
            return partial(single_gpu, evaluate=evaluate, schedule=schedule)
        case "expert":
            return partial(expert, evaluate=evaluate, schedule=schedule)
        case "pipeline":
            return partial(pipeline, evaluate=evaluate, schedule=schedule)
        case "random":
            return partial(_random, evaluate=evaluate, seed=seed, schedule=schedule)
        case "hill-climb":
            return _from_best_heuristic(hill_climb, evaluate, seed, schedule)
        case "annealing":
            return _from_best_heuristic(annealing, evaluate, seed, schedule)
        case "exact":
            return partial(exact, evaluate=evaluate, budget_s=EXACT_S, schedule=schedule)
        case _:
            return partial(_on_units, baseline=PLACE_UNITS[name], evaluate=evaluate, schedule=schedule)


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
    progress: Progress = lambda planner, standing: None,
    starts: Mapping[str, Planner] | None = None,
) -> Winner:
    """All planners but searches, single devices first, then a policy's placement if there is one, then annealing until the budget ends.

    `starts`, where they are given, are asked instead of all planners.
    """
    if starts is None:
        named = planners(problem, Counted(evaluate, budget), seed, schedule)
        starts = {name: plan for name, plan in named.items() if name not in SEARCHES}
    quick = {**starts} if policy is None else {**starts, "policy": policy}

    def search(problem: Problem, start: Placement, budget: Budget, found: Callable[[Standing], object]) -> Placement:
        generator = np.random.default_rng(seed)
        return annealing(problem, evaluate, generator, start=start, budget=budget, schedule=schedule, found=found)

    return best(problem, Counted(evaluate, budget), quick, {"annealing": search}, budget, progress)


def enough(problem: Problem) -> Budget:
    """The budget of a portfolio where nobody gives one: evaluations that take some ten seconds on a core, the same on every machine."""
    return Budget(evaluations=max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, SIMULATED_OPS // problem.num_ops)))


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
