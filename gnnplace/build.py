"""Names to planners: with `gnnplace.build_policy`, the one place where a string becomes a function. Needs no torch.

A new baseline is a name and a `case` here; contract tests and commands take the names from `PlannerName`.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, assert_never, get_args

import numpy as np

from gnnplace.baselines.expert import expert
from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.heft import heft
from gnnplace.baselines.hill_climb import hill_climb
from gnnplace.baselines.metis import metis
from gnnplace.baselines.random_units import random_units
from gnnplace.baselines.single import single_cpu, single_gpu
from gnnplace.frontends import strict_json
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator, Planner

PlannerName = Literal[
    "cpu", "gpu", "expert", "metis-ops", "metis-weights", "metis-coarse", "heft-ops", "heft-weights", "heft-coarse", "random", "hill-climb"
]
SEARCHES: tuple[PlannerName, ...] = ("random", "hill-climb")  # draw at random and take as long as they are given

RANDOM_EVALUATIONS = 64
CLIMB_EVALUATIONS = 500


def planners(problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path") -> dict[str, Planner]:
    """Every baseline that a problem's cluster allows, by name: `cpu` needs a CPU."""
    has_cpu = any(device.kind == "cpu" for device in problem.cluster.devices)
    names: tuple[PlannerName, ...] = get_args(PlannerName)
    return {name: planner(name, evaluate, seed, schedule) for name in names if name != "cpu" or has_cpu}


def planner(name: PlannerName, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path") -> Planner:
    """The baseline of a name; searches draw from `seed`, the others are deterministic."""
    match name:
        case "cpu":
            return partial(single_cpu, evaluate=evaluate, schedule=schedule)
        case "gpu":
            return partial(single_gpu, evaluate=evaluate, schedule=schedule)
        case "expert":
            return partial(expert, evaluate=evaluate, schedule=schedule)
        case "metis-ops":
            return partial(metis, evaluate=evaluate, units_name="ops", schedule=schedule)
        case "metis-weights":
            return partial(metis, evaluate=evaluate, units_name="weights", schedule=schedule)
        case "metis-coarse":
            return partial(metis, evaluate=evaluate, units_name="coarse", schedule=schedule)
        case "heft-ops":
            return partial(heft, evaluate=evaluate, units_name="ops", schedule=schedule)
        case "heft-weights":
            return partial(heft, evaluate=evaluate, units_name="weights", schedule=schedule)
        case "heft-coarse":
            return partial(heft, evaluate=evaluate, units_name="coarse", schedule=schedule)
        case "random":
            return partial(_random, evaluate=evaluate, seed=seed, schedule=schedule)
        case "hill-climb":
            return partial(_climb, evaluate=evaluate, seed=seed, schedule=schedule)
        case _:
            assert_never(name)


def planner_named(name: str, problem: Problem, evaluate: Evaluator, seed: int) -> Planner:
    """The baseline that a user names. Raises ValueError with the names that the problem's cluster allows."""
    named = planners(problem, evaluate, seed)
    if name not in named:
        raise ValueError(strict_json.unknown("planner", name, tuple(named)))
    return named[name]


def best_heuristic(problem: Problem, evaluate: Evaluator, schedule: Schedule = "critical-path") -> Placement:
    """The fastest placement of all planners but searches."""
    named = planners(problem, evaluate, 0, schedule)
    return fastest(problem, [plan(problem) for name, plan in named.items() if name not in SEARCHES], evaluate)


def _random(problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule) -> Placement:
    return random_units(problem, evaluate, np.random.default_rng(seed), evaluations=RANDOM_EVALUATIONS, schedule=schedule)


def _climb(problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule) -> Placement:
    """A climb from the best heuristic, so that it is never worse."""
    start, generator = best_heuristic(problem, evaluate, schedule), np.random.default_rng(seed)
    return hill_climb(problem, evaluate, generator, start=start, evaluations=CLIMB_EVALUATIONS, schedule=schedule)
