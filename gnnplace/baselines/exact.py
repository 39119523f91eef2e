"""The fastest placement and its schedule, proved where that is possible, by constraint programming (CP-SAT of OR-Tools).

`solve` proves: no simulated step of any feasible placement of these units, under any schedule, is shorter than its `bound_ns`
(`exact_model` says why). What its placement takes is for the simulator to say: a list schedule never idles on purpose, so it may be
slower than the program's own schedule. `exact` is the planner: it starts from HEFT and the single devices, and what it gives is never
slower. A problem too large to solve is contracted first; then nothing is proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int32

from gnnplace.baselines.contracted import by_start, contracted, lifted
from gnnplace.baselines.exact_hint import hint
from gnnplace.baselines.exact_memory import add_memory
from gnnplace.baselines.exact_model import Program, write
from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.heft import heft
from gnnplace.baselines.legal import legalised
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator, StepResult
from gnnplace.transforms.units import UnitsName, allowed, expand, units

MAX_CHOICES = 600  # ops x devices of the largest program that is solved as it is
CONTRACTED_CHOICES = 1000  # parts x devices that a larger one is contracted to
SEARCHES = ("default_lp", "no_lp", "lb_tree_search")  # which of them proves soonest differs from problem to problem
WORK_PER_S = 0.06  # CP-SAT's deterministic time in a second of search, as measured


@dataclass(frozen=True)
class Budget:
    """How long to search: so much work as takes about as many seconds, the same work on every machine; or wall-clock seconds."""

    seconds: float = 10.0
    deterministic: bool = True


@dataclass(frozen=True)
class Start:
    """A simulated step to begin with: a search never ends with a longer schedule."""

    device: Int32[np.ndarray, " ops"]
    result: StepResult


@dataclass(frozen=True)
class Solution:
    """What CP-SAT found. `placement` has its order as priorities, `step_time_ns` is its own schedule's; both are None where it found none.

    `bound_ns` is below every simulated step. `proved`: the search is complete, and the two times are equal; or, without a placement,
    none is feasible.
    """

    placement: Placement | None
    step_time_ns: int | None
    bound_ns: int
    proved: bool


def exact(
    problem: Problem,
    evaluate: Evaluator,
    *,
    budget_s: float = 10.0,
    deterministic: bool = True,
    units_name: UnitsName = "ops",
    schedule: Schedule = "critical-path",
) -> Placement:
    """The fastest of what CP-SAT finds, HEFT's and each device alone; with the schedule `given`, each in its own order.

    `evaluate` simulates the problem's own costs. Raises ValueError where a unit may stand nowhere.
    """
    budget = Budget(budget_s, deterministic)
    known = _known(problem, evaluate, units_name)
    if problem.num_ops * problem.num_devices <= MAX_CHOICES:
        found = solve(problem, budget, units_name=units_name, start=_start(problem, evaluate, known)).placement
    else:
        small = contracted(problem, units(problem.graph, "coarse" if units_name == "ops" else units_name), CONTRACTED_CHOICES)
        begin = _start(small.problem, evaluate, _known(small.problem, evaluate, "ops"))
        part = solve(small.problem, budget, start=begin).placement
        found = None if part is None else lifted(problem, small, part)
    candidates = [known] if found is None else [found, known]
    return fastest(problem, [option for one in candidates for option in _under(problem, one, schedule)], evaluate)


def solve(problem: Problem, budget: Budget, *, units_name: UnitsName = "ops", start: Start | None = None) -> Solution:
    """Searches for the fastest step of a problem whose units stand together. Raises ValueError where one may stand nowhere."""
    from ortools.sat.python import cp_model

    made = units(problem.graph, units_name)
    horizon_ns = _longest(problem) if start is None or start.result.feasible_ns is None else start.result.feasible_ns
    program = write(cp_model.CpModel(), problem, made.unit.astype(np.int64), allowed(problem, made), horizon_ns)
    add_memory(program)
    if start is not None and start.result.feasible_ns is not None:
        hint(program, start.device, start.result)
        _complete(program, cp_model.CpSolver())
    solver = cp_model.CpSolver()
    _configure(solver.parameters, budget)
    status = solver.solve(program.model)
    assert status != cp_model.MODEL_INVALID, program.model.validate()
    if status == cp_model.INFEASIBLE:
        return Solution(None, None, 0, proved=True)
    bound_ns = max(0, round(solver.best_objective_bound)) * program.unit_ns
    if status == cp_model.UNKNOWN:
        return Solution(None, None, bound_ns, proved=False)
    return Solution(_placement(program, solver), solver.value(program.step) * program.unit_ns, bound_ns, status == cp_model.OPTIMAL)


def _configure(parameters: Any, budget: Budget) -> None:
    parameters.num_workers = 1
    parameters.random_seed = 0
    parameters.interleave_search = True  # on one worker, in a fixed order
    parameters.subsolvers.extend(SEARCHES)
    if budget.deterministic:
        parameters.max_deterministic_time = budget.seconds * WORK_PER_S
    else:
        parameters.max_time_in_seconds = budget.seconds


def _complete(program: Program, solver: Any) -> None:
    """Hints at what follows from the hints: when buffers are held. A search that has to find that first may lose its start."""
    solver.parameters.num_workers = 1
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.stop_after_first_solution = True
    status = solver.solve(program.model)
    assert solver.status_name(status) in ("OPTIMAL", "FEASIBLE"), "a simulated step breaks no constraint"
    program.model.clear_hints()
    for index, value in enumerate(solver.response_proto.solution):
        program.model.add_hint(program.model.get_int_var_from_proto_index(index), value)


def _known(problem: Problem, evaluate: Evaluator, units_name: UnitsName) -> Placement:
    """The fastest of HEFT and of each device alone, units whole: what a search begins with."""
    made = units(problem.graph, units_name)
    alone = [expand(made, legalised(problem, made, np.full(made.num_units, device))) for device in range(problem.num_devices)]
    return fastest(problem, [heft(problem, evaluate, units_name=units_name), *map(Placement, alone)], evaluate)


def _start(problem: Problem, evaluate: Evaluator, placement: Placement) -> Start:
    return Start(placement.device, evaluate(problem, [placement], timeline=True)[0])


def _longest(problem: Problem) -> int:
    """Nanoseconds that no list schedule of a linked placement exceeds: everything after everything else."""
    delay = 2 * int(problem.transfer_ns.max(initial=0)) + int(problem.cluster.link_latency_ns.max(initial=0)) + 1
    return int(problem.time_ns.max(axis=1).sum()) + delay * problem.graph.num_edges


def _placement(program: Program, solver: Any) -> Placement:
    device = np.array([[solver.boolean_value(on) for on in row].index(True) for row in program.stands], dtype=np.int32)
    start = np.array([solver.value(start) for start in program.start], dtype=np.int64)
    return by_start(program.problem, device, start)


def _under(problem: Problem, placement: Placement, schedule: Schedule) -> list[Placement]:
    """The placement under a schedule; with the schedule `given`, by its own order and by what remains behind each op."""
    if schedule != "given":
        return [Placement(placement.device, schedule)]
    by_rank = by_start(problem, placement.device, np.zeros(problem.num_ops, dtype=np.int64))
    return [by_rank] if placement.priority is None else [placement, by_rank]
