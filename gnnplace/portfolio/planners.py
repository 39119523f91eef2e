"""Names to planners: with `gnnplace.policies.registry`, the one place where a string becomes a function. Needs no
torch.

A new baseline is a name and a `case` here, one that places units a name and a row of `PLACE_UNITS`; contract tests and
commands take the names from `PlannerName`. Other packages add theirs by entry points of the group `gnnplace.planners`
(`gnnplace/installed.py`): functions `(problem, evaluate, schedule=...) -> Placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from gnnplace import installed
from gnnplace.baselines.annealing import annealing, hill_climb
from gnnplace.baselines.baechi import m_etf, m_sct, m_topo
from gnnplace.baselines.cp_sat.exact import Limit, exact
from gnnplace.baselines.cpop import critical_path_first
from gnnplace.baselines.expert import expert
from gnnplace.baselines.fewer import OnPart, on_part, parts
from gnnplace.baselines.genetic import genetic
from gnnplace.baselines.heft import heft
from gnnplace.baselines.metis import metis
from gnnplace.baselines.peft import peft
from gnnplace.baselines.pipeline import pipeline
from gnnplace.baselines.random_units import random_units
from gnnplace.baselines.ranked_climb import ranked_climb
from gnnplace.baselines.scotch import min_cut, scotch
from gnnplace.baselines.scotch_library import HOW_TO_GET, available
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.rations import Rationed, shares
from gnnplace.baselines.single import fastest, single_cpu, single_gpu
from gnnplace.bounds.bounds import least_times
from gnnplace.constraints import Stages
from gnnplace.formats import strict_json
from gnnplace.placement import Placement, Schedule, rule_of
from gnnplace.portfolio.stages import planned_stages, staged
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.units.units import UnitsName

# slow last
UnitPlannerName = Literal[
    "heft", "peft", "critical-path-first", "m-topo", "m-etf", "m-sct", "metis", "scotch", "min-cut"
]
PlannerName = Literal[
    "cpu", "gpu", "expert", "pipeline",
    UnitPlannerName,
    "random", "hill-climb", "ranked-climb", "annealing", "genetic", "exact",
]  # fmt: skip
# take what they are given
SEARCHES: tuple[PlannerName, ...] = ("random", "hill-climb", "ranked-climb", "annealing", "genetic", "exact")
SCOTCH: tuple[PlannerName, ...] = ("scotch", "min-cut")  # need a library that is not Python's
UNITS: tuple[UnitsName, ...] = ("ops", "weights", "coarse")

RANDOM_EVALUATIONS = 64
SEARCH_EVALUATIONS = 500
EXACT_S = 3.0  # of CP-SAT's work


def planners(
    problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path"
) -> dict[str, Planner]:
    """Every baseline that a problem's cluster and this machine allow, by name: `cpu` needs a CPU, `SCOTCH` its library.
    Then those of other packages.
    """
    absent = [*missing()] + ([] if any(device.kind == "cpu" for device in problem.cluster.devices) else ["cpu"])
    names: tuple[PlannerName, ...] = get_args(PlannerName)
    more = {name: partial(plan, evaluate=evaluate, schedule=rule_of(schedule)) for name, plan in others().items()}
    return {name: planner(name, evaluate, seed, schedule) for name in names if name not in absent} | more


@cache
def others() -> dict[str, Any]:
    """The baselines that other installed packages add, by name."""
    return installed.added("gnnplace.planners", get_args(PlannerName))


def missing() -> dict[str, str]:
    """The planners whose library is not installed here, and how to get it."""
    return {} if available() else dict.fromkeys(SCOTCH, HOW_TO_GET)


def planner(name: PlannerName, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path") -> Planner:
    """The baseline of a name; searches draw from `seed`, the others are deterministic. What places units is the best of
    all `UNITS`.

    With the schedule `given`, `genetic` and `exact` propose priorities; the others plan for the schedule of the
    critical path.
    """
    rule = rule_of(schedule)
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


def without_one(problem: Problem, evaluate: Rationed, schedule: Schedule) -> dict[str, Planner]:
    """Those that place units, for the problem without one of several equal devices."""
    named: dict[str, Planner] = {}
    names: tuple[UnitPlannerName, ...] = get_args(UnitPlannerName)
    for device, part in parts(problem).items():
        judge = OnPart(evaluate, part)
        named |= {
            f"{name} without {device}": on_part(planner(name, judge, 0, schedule), part)
            for name in names
            if name not in missing()
        }
    return named


def with_stages(
    problem: Problem, stages: Stages | None, named: Mapping[str, Planner], evaluate: Evaluator, schedule: Schedule
) -> dict[str, Planner]:
    """Planners by name, and `stages`, which plans these, where there are any; where they are binding, the others but
    searches are followed by the nearest stages to what they propose.
    """
    if stages is None:
        return dict(named)
    stage_planner: Planner = partial(planned_stages, evaluate=evaluate, stages=stages, schedule=rule_of(schedule))
    kept = [name for name in named if not stages.binding or name not in SEARCHES]
    return {"stages": stage_planner} | {name: staged(named[name], stages) for name in kept}


def planner_named(name: str, problem: Problem, evaluate: Evaluator, seed: int) -> Planner:
    """The baseline that a user names. Raises ValueError with the names that the problem's cluster allows."""
    named = planners(problem, evaluate, seed)
    if name in missing():
        raise ValueError(f"planner {name!r}: {missing()[name]}")
    if name not in named:
        raise ValueError(strict_json.unknown("planner", name, tuple(named)))
    return named[name]


def best_heuristic(problem: Problem, evaluate: Evaluator, schedule: Schedule = "critical-path") -> Placement:
    """The fastest placement of all planners but searches."""
    named = planners(problem, evaluate, 0, schedule)
    return fastest(problem, [plan(problem) for name, plan in named.items() if name not in SEARCHES], evaluate)


@runtime_checkable
class _PlacesUnits(Protocol):
    """A baseline that places units of any name."""

    def __call__(
        self, problem: Problem, evaluate: Evaluator, *, units_name: UnitsName, schedule: Schedule
    ) -> Placement: ...


PLACE_UNITS: dict[UnitPlannerName, _PlacesUnits] = {
    "scotch": scotch, "min-cut": min_cut, "metis": metis,
    "heft": heft, "peft": peft, "critical-path-first": critical_path_first, "m-topo": m_topo, "m-etf": m_etf,
    "m-sct": m_sct,
}  # fmt: skip


def _on_units(problem: Problem, baseline: _PlacesUnits, evaluate: Evaluator, schedule: Schedule) -> Placement:
    shared = zip(UNITS, shares(evaluate, len(UNITS)), strict=True)
    placements = [baseline(problem, part, units_name=name, schedule=schedule) for name, part in shared]
    return fastest(problem, placements, evaluate)


def _random(problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule) -> Placement:
    return random_units(
        problem, evaluate, np.random.default_rng(seed), evaluations=RANDOM_EVALUATIONS, schedule=schedule
    )


def _from_best_heuristic(
    search: Callable[..., Placement], evaluate: Evaluator, seed: int, schedule: Schedule
) -> Planner:
    """A search of `SEARCH_EVALUATIONS` from the best heuristic, so that it is never worse."""

    def plan(problem: Problem) -> Placement:
        start, generator = best_heuristic(problem, evaluate, schedule), np.random.default_rng(seed)
        return search(
            problem, evaluate, generator, start=start, budget=Budget(evaluations=SEARCH_EVALUATIONS), schedule=schedule
        )

    return plan
