"""The search of `exact`, in this process: it writes a constraint program, adds cuts and a hint, and solves it by
CP-SAT.

This module must not share a process with TensorFlow: symbols of the two libraries clash, and solving ends in a
segmentation fault (or-tools issue 3230). `exact.solve` starts a child process for it (`child`).

Cuts are lower bounds as constraints of the program; every simulated step of a feasible placement satisfies them. Heads
and tails bound the start and end of each op on each device. If all ops of a set start at a or later and have at least b
of the step left after them, the ops of the set on one device take at most (step - a - b) times its streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int32, Int64
from ortools.sat.python import cp_model

from gnnplace.baselines.cp_sat.contracted import by_start
from gnnplace.baselines.cp_sat.exact import Limit, Solution, Start
from gnnplace.baselines.cp_sat.memory import add_memory
from gnnplace.baselines.cp_sat.model import ConstraintProgram, write
from gnnplace.baselines.cp_sat.queues import add_queues
from gnnplace.baselines.cp_sat.symmetry import add_symmetry, numbers_in_order
from gnnplace.placement import Placement
from gnnplace.problems import MAX_STEP_NS, Problem
from gnnplace.result import LeastTimes, StepResult, Timeline
from gnnplace.units.units import UnitsName, allowed, units

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar


SEARCHES = ("default_lp", "no_lp", "lb_tree_search")  # which one completes first depends on the problem
WORK_PER_S = 0.1  # CP-SAT's deterministic time in a second of search, measured
MOST_WINDOWS = 6  # values of a and of b in the cuts


def search(
    problem: Problem, limit: Limit, units_name: UnitsName, start: Start | None, least: LeastTimes | None
) -> Solution:
    """The fastest step of a problem with the given units. Raises ValueError if a unit is allowed on no device."""
    grouping = units(problem.graph, units_name)
    horizon_ns = (
        int(problem.longest_ns) if start is None or start.result.feasible_ns is None else start.result.feasible_ns
    )
    program = write(cp_model.CpModel(), problem, grouping.unit.astype(np.int64), allowed(problem, grouping), horizon_ns)
    add_memory(program)
    add_queues(program)
    add_symmetry(program)
    if least is not None:
        add_cuts(program, least)
    if start is not None and start.result.feasible_ns is not None:
        hint(program, start.device, start.result)
        _complete(program, cp_model.CpSolver())
    solver = cp_model.CpSolver()
    _configure(solver.parameters, limit)
    status = solver.solve(program.model)
    assert status != cp_model.MODEL_INVALID, program.model.validate()
    if status == cp_model.INFEASIBLE:
        return Solution(None, None, 0, proved=True)
    bound_ns = max(0, round(solver.best_objective_bound)) * program.unit_ns
    if status == cp_model.UNKNOWN:
        return Solution(None, None, bound_ns, proved=False)
    return Solution(
        _placement(program, solver), solver.value(program.step) * program.unit_ns, bound_ns, status == cp_model.OPTIMAL
    )


def _configure(parameters: Any, limit: Limit) -> None:
    parameters.num_workers = 1
    parameters.random_seed = 0
    parameters.interleave_search = True  # on one worker, in a fixed order
    parameters.subsolvers.extend(SEARCHES)
    if limit.deterministic:
        parameters.max_deterministic_time = limit.seconds * WORK_PER_S
    else:
        parameters.max_time_in_seconds = limit.seconds


def _complete(program: ConstraintProgram, solver: Any) -> None:
    """Completes the hint by the times of buffers, which follow from it. Otherwise the search may lose its start."""
    solver.parameters.num_workers = 1
    solver.parameters.fix_variables_to_their_hinted_value = True
    solver.parameters.stop_after_first_solution = True
    status = solver.solve(program.model)
    assert solver.status_name(status) in ("OPTIMAL", "FEASIBLE"), "a simulated step breaks no constraint"
    program.model.clear_hints()
    for index, value in enumerate(solver.response_proto.solution):
        program.model.add_hint(program.model.get_int_var_from_proto_index(index), value)


def _placement(program: ConstraintProgram, solver: Any) -> Placement:
    device = np.array([[solver.boolean_value(on) for on in row].index(True) for row in program.stands], dtype=np.int32)
    start = np.array([solver.value(start) for start in program.start], dtype=np.int64)
    return by_start(program.problem, device, start)


def hint(program: ConstraintProgram, device: Int32[np.ndarray, " ops"], result: StepResult) -> None:
    """Adds a step with a timeline as a hint: devices, starts and transfers.

    Equal devices are renumbered in the order that `symmetry` requires. The times of absent transfers don't matter.
    """
    timeline, model = result.timeline, program.model
    assert timeline is not None and result.step_time_ns is not None
    number = numbers_in_order(program.problem, device)
    values = {program.step.index: (program.step, program.units(result.step_time_ns))}
    for op, row in enumerate(program.stands):
        values[program.start[op].index] = program.start[op], program.units(timeline.start_ns[op])
        values |= {on.index: (on, int(d == number[device[op]])) for d, on in enumerate(row)}
    values |= {variable.index: (variable, value) for variable, value in _transfers(program, timeline, number)}
    for variable, value in values.values():
        model.add_hint(variable, value)


def _transfers(
    program: ConstraintProgram, timeline: Timeline, number: Int32[np.ndarray, " devices"]
) -> Iterator[tuple[IntVar, int]]:
    source, target = number[timeline.transfer_src], number[timeline.transfer_dst]
    rows = {pair: row for row, pair in enumerate(zip(timeline.transfer_output.tolist(), target.tolist(), strict=True))}
    for (output, there), sent in program.sent.items():
        row = rows.get((output, there))
        yield sent.present, int(row is not None)
        for here, on in sent.by.items():
            yield on, int(row is not None and here == source[row])
        if row is None:
            ended = program.units(timeline.end_ns[program.problem.graph.output_op[output]])
            yield sent.start, ended
            yield sent.received, ended
        else:
            receive_ns = timeline.receive_start_ns[row]
            yield sent.start, program.units(timeline.transfer_start_ns[row])
            yield sent.received, program.units(timeline.transfer_end_ns[row] if receive_ns < 0 else receive_ns)


def add_cuts(program: ConstraintProgram, least: LeastTimes) -> None:
    """Adds the largest lower bound, every head and tail, and windows of work for each device."""
    model = program.model
    model.add(program.step >= program.units(least.step_ns))
    head, tail = least.head_ns, least.tail_ns
    for op, row in enumerate(program.stands):
        before: Any = 0
        after: Any = 0
        for device, on in enumerate(row):
            if max(head[op, device], tail[op, device]) >= MAX_STEP_NS:
                model.add(on == 0)
            else:
                before += program.units(head[op, device]) * on
                after += program.units(tail[op, device]) * on
        model.add(program.start[op] >= before)
        model.add(program.step >= program.end[op] + after)
    _add_windows(program, head.min(axis=1), tail.min(axis=1))


def _add_windows(program: ConstraintProgram, head: Int64[np.ndarray, " ops"], tail: Int64[np.ndarray, " ops"]) -> None:
    problem = program.problem
    for a, b in product(_some(head), _some(tail)):
        inside = np.flatnonzero((head >= a) & (tail >= b)).tolist()
        for device, streams in enumerate(problem.cluster.streams.tolist()):
            work = sum(program.units(problem.time_ns[op, device]) * program.stands[op][device] for op in inside)
            if len(inside) > 1:
                program.model.add(streams * (program.step - program.units(a) - program.units(b)) >= work)


def _some(values: Int64[np.ndarray, " ops"]) -> list[int]:
    """At most `MOST_WINDOWS` of the values, evenly spaced by rank, the least included."""
    distinct = np.unique(values[values < MAX_STEP_NS])
    if len(distinct) > MOST_WINDOWS:
        distinct = distinct[np.linspace(0, len(distinct) - 1, MOST_WINDOWS).astype(np.int64)]
    return distinct.tolist()
