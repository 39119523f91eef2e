"""A simulated step as values of the program's variables, from which the search starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int32

from gnnplace.baselines.cp_sat.model import Program
from gnnplace.baselines.cp_sat.symmetry import numbers_in_order
from gnnplace.result import StepResult, Timeline

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar


def hint(program: Program, device: Int32[np.ndarray, " ops"], result: StepResult) -> None:
    """Adds a step with a timeline as a hint: devices, starts and transfers, with equal devices in the order that
    `symmetry` asks for.

    The times of absent transfers don't matter.
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
    program: Program, timeline: Timeline, number: Int32[np.ndarray, " devices"]
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
            begin, left, receives = (
                column[row]
                for column in (timeline.transfer_start_ns, timeline.transfer_end_ns, timeline.receive_start_ns)
            )
            yield sent.start, program.units(begin)
            yield sent.received, program.units(left if receives < 0 else receives)
