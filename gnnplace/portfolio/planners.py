"""The table of planners: each baseline by name. Needs no torch.

A new baseline is one line of `BASELINES`, a new schedule of a pipeline one of `PIPELINES`. Commands, the portfolio and
the contract tests take their names from there.
Other packages add baselines by entry points of the group `gnnplace.planners` (`gnnplace/installed.py`): functions
`(problem, evaluate, schedule=...) -> Placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

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
from gnnplace.baselines.pipelines.in_replicas import in_replicas
from gnnplace.baselines.pipelines.pipelined import several
from gnnplace.baselines.pipelines.schedules import SCHEDULES
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
from gnnplace.placement import Placement, Schedule, rule_of, scheduled
from gnnplace.portfolio.stages import planned_stages, staged
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.units.units import UnitsName

RANDOM_EVALUATIONS = 64
SEARCH_EVALUATIONS = 500
EXACT_S = 3.0  # of CP-SAT's work
UNITS: tuple[UnitsName, ...] = ("ops", "weights", "coarse")


@dataclass(frozen=True)
class Baseline:
    """A line of the table.

    `takes` says with which arguments `function` is called:

    - "schedule": `(problem, evaluate, *, schedule)`.
    - "units": also `units_name`. The planner is the best of all `UNITS`.
    - "generator": `(problem, evaluate, generator, *, schedule)`.
    - "start": also `start`, the best heuristic's placement, and `budget`.

    Attributes:
        slower: why the planner can be slower than the best single device; None if it starts from the single devices.
        needs: what a cluster (a CPU) or this machine (Scotch's library) must have.
        search: whether it only improves what the heuristics propose, so that they are chosen without it.
        priorities: whether it proposes priorities under the schedule `given`.
    """

    function: Callable[..., Placement]
    takes: Literal["schedule", "units", "generator", "start"] = "schedule"
    slower: str | None = None
    needs: Literal["cpu", "scotch"] | None = None
    search: bool = False
    priorities: bool = False


def _random(problem: Problem, evaluate: Evaluator, generator: np.random.Generator, *, schedule: Schedule) -> Placement:
    return random_units(problem, evaluate, generator, evaluations=RANDOM_EVALUATIONS, schedule=schedule)


def _exact(problem: Problem, evaluate: Evaluator, *, schedule: Schedule) -> Placement:
    return exact(problem, evaluate, least_times=least_times, limit=Limit(EXACT_S), schedule=schedule)


BASELINES: dict[str, Baseline] = {  # the slow ones last
    "cpu": Baseline(single_cpu, needs="cpu",
        slower="Everything runs on the CPU, which is several times slower than an accelerator."),
    "gpu": Baseline(single_gpu, slower="Everything runs on one accelerator, although a CPU is faster here."),
    "expert": Baseline(expert,
        slower="Each accelerator runs some layers, one after another, so a slow accelerator or link only adds time."),
    "pipeline": Baseline(pipeline, slower="Only accelerators are used, although a CPU is faster here."),
    "heft": Baseline(heft, "units",
        slower="HEFT is greedy: a unit goes where it would finish first, whatever transfers its results will need."),
    "peft": Baseline(peft, "units",
        slower="PEFT looks ahead as if devices and links were idle, so it does not foresee queues of transfers."),
    "critical-path-first": Baseline(critical_path_first, "units",
        slower="Units off the critical path are placed greedily, whatever transfers their results will need."),
    "m-topo": Baseline(m_topo, "units",
        slower="m-TOPO balances memory instead of time: a slow accelerator gets as much as a fast one, and transfers "
               "do not count."),
    "m-etf": Baseline(m_etf, "units",
        slower="m-ETF takes the earliest start, not the earliest end: idle slow accelerators get ops, and later "
               "transfers are not foreseen."),
    "m-sct": Baseline(m_sct, "units",
        slower="m-SCT keeps a favourite child with its parent; here that saves no transfers."),
    "metis": Baseline(metis, "units",
        slower="The cut balances work and saves transfer time, but ignores order: mostly one accelerator or link is "
               "busy."),
    "scotch": Baseline(scotch, "units", needs="scotch",
        slower="The cut balances work and saves bytes, but ignores order: mostly one device or link is busy while "
               "the others wait."),
    "min-cut": Baseline(min_cut, "units", needs="scotch",
        slower="The cut balances work and saves bytes, but ignores order: mostly one accelerator or link is busy."),
    "random": Baseline(_random, "generator", search=True,
        slower="Slow accelerators get as much work as fast ones, and half of the edges or more cross devices."),
    "hill-climb": Baseline(hill_climb, "start", search=True),
    "ranked-climb": Baseline(ranked_climb, "start", search=True),
    "annealing": Baseline(annealing, "start", search=True),
    "genetic": Baseline(genetic, "start", search=True, priorities=True),
    "exact": Baseline(_exact, search=True, priorities=True),
}  # fmt: skip
PIPELINES: dict[str, Callable[..., Placement]] = {  # (problem, evaluate), of several micro-batches for each replica
    name: partial(in_replicas, plan=plan) for name, plan in SCHEDULES.items()
}
SLOW_PIPELINE = (
    "Devices wait where stages are unequal or few micro-batches fill them, and all accelerators have a stage."
)
SEARCHES = tuple(name for name, baseline in BASELINES.items() if baseline.search)
SINGLE = ("cpu", "gpu")  # a single device of a kind


def planner(name: str, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path") -> Planner:
    """The baseline of a name. Searches draw from `seed`; the others are deterministic.

    With the schedule `given`, baselines with `priorities` propose priorities; the others plan for the schedule of the
    critical path.
    """
    baseline = BASELINES[name]
    rule = schedule if baseline.priorities else rule_of(schedule)
    match baseline.takes:
        case "schedule":
            return partial(baseline.function, evaluate=evaluate, schedule=rule)
        case "units":
            return partial(_on_units, baseline=baseline.function, evaluate=evaluate, schedule=rule)
        case "generator":
            return partial(_drawn, baseline=baseline.function, evaluate=evaluate, seed=seed, schedule=rule)
        case "start":
            return partial(_from_best, search=baseline.function, evaluate=evaluate, seed=seed, schedule=rule)


def planners(
    problem: Problem, evaluate: Evaluator, seed: int, schedule: Schedule = "critical-path"
) -> dict[str, Planner]:
    """Every baseline that a problem and this machine allow, by name; last those of other packages.

    The schedules of `PIPELINES` need several micro-batches.
    """
    absent = [*missing()]
    if all(device.kind != "cpu" for device in problem.cluster.devices):
        absent += [name for name, baseline in BASELINES.items() if baseline.needs == "cpu"]
    pipelines = PIPELINES if several(problem.graph) else {}
    more = {name: partial(plan, evaluate=evaluate, schedule=rule_of(schedule)) for name, plan in others().items()}
    return (
        {name: planner(name, evaluate, seed, schedule) for name in BASELINES if name not in absent}
        | {name: partial(plan, evaluate=evaluate) for name, plan in pipelines.items()}
        | more
    )


@cache
def others() -> dict[str, Any]:
    """The baselines that other installed packages add, by name."""
    return installed.added("gnnplace.planners", {**BASELINES, **PIPELINES})


def require(name: str, problem: Problem) -> None:
    """Raises ValueError (one line) if a planner lacks its library, or the micro-batches that it schedules."""
    if name in missing():
        raise ValueError(f"planner {name!r}: {missing()[name]}")
    if name in PIPELINES and not several(problem.graph):
        raise ValueError(
            f"planner {name!r}: needs several micro-batches, as many for each replica, with copies together "
            "(--micro-batches 8)"
        )


def missing() -> dict[str, str]:
    """The planners whose library is not installed here, and how to get it."""
    needy = [name for name, baseline in BASELINES.items() if baseline.needs == "scotch"]
    return {} if available() else dict.fromkeys(needy, HOW_TO_GET)


def without_one(problem: Problem, evaluate: Rationed, schedule: Schedule) -> dict[str, Planner]:
    """The baselines that place units, for the problem without one of several equal devices."""
    absent, named = missing(), dict[str, Planner]()
    for device, part in parts(problem).items():
        judge = OnPart(evaluate, part)
        named |= {
            f"{name} without {device}": on_part(planner(name, judge, 0, schedule), part)
            for name, baseline in BASELINES.items()
            if baseline.takes == "units" and name not in absent
        }
    return named


def with_stages(
    problem: Problem, stages: Stages | None, named: Mapping[str, Planner], evaluate: Evaluator, schedule: Schedule
) -> dict[str, Planner]:
    """The planners `named`, and `stages`, which plans stages, if there are any.

    Where stages are binding, each planner proposes the stages nearest to its own placement, and searches are left out.
    """
    if stages is None:
        return dict(named)
    stage_planner: Planner = partial(planned_stages, evaluate=evaluate, stages=stages, schedule=rule_of(schedule))
    kept = [name for name in named if not stages.binding or name not in SEARCHES]
    return {"stages": stage_planner} | {name: staged(named[name], stages) for name in kept}


def planner_named(name: str, problem: Problem, evaluate: Evaluator, seed: int) -> Planner:
    """The baseline of a user's name. Raises ValueError with the names that the problem's cluster allows."""
    named = planners(problem, evaluate, seed)
    require(name, problem)
    if name not in named:
        raise ValueError(strict_json.unknown("planner", name, tuple(named)))
    return named[name]


def best_heuristic(problem: Problem, evaluate: Evaluator, schedule: Schedule = "critical-path") -> Placement:
    """The fastest placement of all planners but searches; those of pipelines are timed under `schedule`, too."""
    named, rule = planners(problem, evaluate, 0, schedule), rule_of(schedule)
    placements = [plan(problem) for name, plan in named.items() if name not in SEARCHES]
    timed = [scheduled(each, rule) if each.schedule == "in-order" else each for each in placements]
    return fastest(problem, timed, evaluate)


def slower_than_one_device(times_ns: Mapping[str, int | None]) -> dict[str, str]:
    """The reason for each planner that is slower than the best single device.

    `times_ns` is None for an infeasible placement.
    """
    alone = [time for name in SINGLE if (time := times_ns.get(name)) is not None]
    slower = {name: None for name, time in times_ns.items() if time is not None and alone and time > min(alone)}
    reasons = {name: BASELINES[name].slower for name in slower if name in BASELINES}
    reasons |= dict.fromkeys(slower.keys() & PIPELINES.keys(), SLOW_PIPELINE)
    return {name: reasons.get(name) or "Not explained yet." for name in slower}


def _on_units(
    problem: Problem, baseline: Callable[..., Placement], evaluate: Evaluator, schedule: Schedule
) -> Placement:
    rations = zip(UNITS, shares(evaluate, len(UNITS)), strict=True)
    placements = [baseline(problem, ration, units_name=name, schedule=schedule) for name, ration in rations]
    return fastest(problem, placements, evaluate)


def _drawn(
    problem: Problem, baseline: Callable[..., Placement], evaluate: Evaluator, seed: int, schedule: Schedule
) -> Placement:
    return baseline(problem, evaluate, np.random.default_rng(seed), schedule=schedule)


def _from_best(
    problem: Problem, search: Callable[..., Placement], evaluate: Evaluator, seed: int, schedule: Schedule
) -> Placement:
    """A search of `SEARCH_EVALUATIONS` from the best heuristic, so that it is never worse."""
    start, budget = best_heuristic(problem, evaluate, schedule), Budget(evaluations=SEARCH_EVALUATIONS)
    return search(problem, evaluate, np.random.default_rng(seed), start=start, budget=budget, schedule=schedule)
