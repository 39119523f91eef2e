"""The memory constraints of the program: the bytes that each device holds at any time (see `model`)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from gnnplace.baselines.cp_sat.model import LARGEST, ConstraintProgram


def add_memory(program: ConstraintProgram) -> None:
    """For each device that could overflow, limits workspaces and buffers to its memory without persistent bytes.

    If a device keeps parts of a root in separate buffers, received aliases count as 0 bytes, which is a lower bound.
    """
    problem, graph = program.problem, program.problem.graph
    roots = _roots(program)
    arriving = sum(max(graph.output_bytes[output] for output in outputs) for outputs in roots.values())
    at_most = int(graph.persistent_bytes.sum() + graph.workspace_bytes.sum() + arriving)
    for device, capacity in enumerate(problem.cluster.memory_bytes.tolist()):
        if at_most > capacity:
            _add_device(program, device, capacity, roots)


def _roots(program: ConstraintProgram) -> dict[int, list[int]]:
    """The outputs that share each root; roots without bytes are left out."""
    roots: dict[int, list[int]] = defaultdict(list)
    for output, root in enumerate(program.problem.graph.output_root.tolist()):
        roots[root].append(output)
    size = program.problem.graph.output_bytes
    return {root: outputs for root, outputs in roots.items() if max(size[output] for output in outputs) > 0}


def _add_device(program: ConstraintProgram, device: int, capacity: int, roots: dict[int, list[int]]) -> None:
    model, graph = program.model, program.problem.graph
    unit = -(-max(1, capacity) // LARGEST)
    persistent = (graph.persistent_bytes // unit).tolist()
    left = model.new_int_var(0, -(-capacity // unit), "")
    model.add(
        left
        == -(-capacity // unit)
        - sum(size * row[device] for size, row in zip(persistent, program.stands, strict=True) if size)
    )
    intervals: list[Any] = []
    sizes: list[int] = []
    for op, workspace in enumerate((graph.workspace_bytes // unit).tolist()):
        if workspace:
            length = program.units(program.problem.time_ns[op, device])
            intervals.append(
                model.new_optional_fixed_size_interval_var(program.start[op], length, program.stands[op][device], "")
            )
            sizes.append(workspace)
    for root, outputs in roots.items():
        alone = [root] if program.problem.cluster.device_received[device] else outputs
        for interval, size in _buffers(program, device, root, alone):
            intervals.append(interval)
            sizes.append(size // unit)
    model.add_cumulative(intervals, sizes, left)


def _buffers(program: ConstraintProgram, device: int, root: int, outputs: list[int]) -> list[tuple[Any, int]]:
    """The intervals and bytes of a root's buffer on a device, produced or received there.

    An interval covers all holders.
    """
    model, graph = program.model, program.problem.graph
    begin, end = (model.new_int_var(0, program.horizon, "") for _ in range(2))
    length = model.new_int_var(0, program.horizon, "")
    owner = int(graph.output_op[root])
    local = program.stands[owner][device]
    model.add(begin <= program.start[owner]).only_enforce_if(local)
    users = {int(op) for op in graph.output_op[outputs]} | {
        int(op) for op in graph.edge_dst[np.isin(graph.edge_data, outputs)]
    }
    for op in users:
        model.add(end >= program.end[op]).only_enforce_if(program.stands[op][device])
    for output in outputs:
        if graph.output_is_result[output]:
            model.add(end >= program.step).only_enforce_if(program.stands[graph.output_op[output]][device])
    arrivals = [arrival for output in outputs for arrival in _hold_while_sent(program, device, output, begin, end)]
    intervals = [(model.new_optional_interval_var(begin, length, end, local, ""), int(graph.output_bytes[root]))]
    if arrivals:
        sent = model.new_bool_var("")
        for arrival in arrivals:
            model.add_bool_or([arrival.negated(), local, sent])
        smallest = int(graph.output_bytes[outputs].min())
        intervals.append((model.new_optional_interval_var(begin, length, end, sent, ""), smallest))
    return intervals


def _hold_while_sent(program: ConstraintProgram, device: int, output: int, begin: Any, end: Any) -> list[Any]:
    """Holds the buffer of an output during its transfers; returns the presences of transfers to the device.

    A transfer from the device holds the buffer until it leaves, a transfer to the device from its start to its arrival.
    """
    model = program.model
    for there in range(program.problem.num_devices):
        away = program.sent.get((output, there))
        if away is not None and device in away.by:
            model.add(end >= away.leaves).only_enforce_if(away.by[device])
    coming = program.sent.get((output, device))
    if coming is None:
        return []
    for on in coming.by.values():
        model.add(begin <= coming.start).only_enforce_if(on)
        model.add(end >= coming.arrives).only_enforce_if(on)
    return list(coming.by.values())
