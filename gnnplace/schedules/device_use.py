"""The use of each device over a step: its memory (docs/execution-model.md#memory) and its streams.

A slot is the buffer of an output on a device, with the number `output * devices + device`. It is taken when the op that
produces the output starts, or when the first transfer of the output to the device begins. It is left when the last op
on the device that reads or produces it has ended and the last transfer from the device has left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.cluster import RECEIVED
from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.schedules.buffers import buffers

PARTS, OUTPUTS = RECEIVED.index("parts"), RECEIVED.index("outputs")


class MemoryUse(NamedTuple):
    """A device uses `bytes[i]` from `time_ns[i]` on. Times are distinct and ascend from 0."""

    time_ns: Int64[np.ndarray, " changes"]
    bytes: Int64[np.ndarray, " changes"]


class MemoryChanges(NamedTuple):
    """What a step takes (bytes above 0) and leaves on devices, in no order: state, workspaces, buffers.

    `output` is the output that owns a buffer, `NONE` for the state and the workspace of `op`.
    """

    device: Int64[np.ndarray, " changes"]
    time_ns: Int64[np.ndarray, " changes"]
    bytes: Int64[np.ndarray, " changes"]
    op: Int64[np.ndarray, " changes"]
    output: Int64[np.ndarray, " changes"]


def memory_changes(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> MemoryChanges:
    """What the step takes and leaves. State is taken at 0 and never left."""
    graph, count, ops = problem.graph, problem.num_devices, np.arange(problem.num_ops)
    key, taken_ns, left_ns, size = _slots(problem, device, timeline)
    root, none = graph.output_root[key // count], np.full(problem.num_ops, NONE)
    maker, work = graph.output_op[root], graph.workspace_bytes
    return MemoryChanges(
        np.concatenate([device, device, device, key % count, key % count]),
        np.concatenate([np.zeros_like(ops), timeline.start_ns, timeline.end_ns, taken_ns, left_ns]),
        np.concatenate([graph.persistent_bytes, work, -work, size, -size]),
        np.concatenate([ops, ops, ops, maker, maker]),
        np.concatenate([none, none, none, root, root]),
    )


def memory_use(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> list[MemoryUse]:
    """The memory use of every device. Its maximum is the step's peak memory."""
    changes, uses = memory_changes(problem, device, timeline), []
    for d in range(problem.num_devices):
        here = changes.device == d
        moments, place = np.unique(np.append(0, changes.time_ns[here]), return_inverse=True)
        change = np.zeros(len(moments), dtype=np.int64)
        np.add.at(change, place[1:], changes.bytes[here])
        uses.append(MemoryUse(moments, change.cumsum()))
    return uses


def in_flight(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> list[int]:
    """The most micro-batches in flight on each device at once, 0 on a device that works on none.

    A micro-batch is in flight on a device from the start of its first op with a kernel there to the end of its last.
    """
    copies, most = problem.graph.copies, [0] * problem.num_devices
    assert copies is not None
    ops = np.flatnonzero(problem.graph.kernel & (copies.micro_batch != NONE) & ~copies.added)
    key = device[ops].astype(np.int64) * copies.micro_batches + copies.micro_batch[ops]
    pairs, place = np.unique(key, return_inverse=True)
    first, last = np.full(len(pairs), timeline.end_ns.max()), np.zeros(len(pairs), dtype=np.int64)
    np.minimum.at(first, place, timeline.start_ns[ops])
    np.maximum.at(last, place, timeline.end_ns[ops])
    where = pairs // copies.micro_batches
    for here in np.unique(where).tolist():
        begins, ends = np.sort(first[where == here]), np.sort(last[where == here])
        begun = np.searchsorted(begins, begins, side="right")
        most[here] = int((begun - np.searchsorted(ends, begins, side="right")).max())
    return most


class _Slots(NamedTuple):
    """The slots that the step takes, by their number `key`."""

    key: Int64[np.ndarray, " slots"]
    taken_ns: Int64[np.ndarray, " slots"]
    left_ns: Int64[np.ndarray, " slots"]
    bytes: Int64[np.ndarray, " slots"]


def _slots(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> _Slots:
    graph = problem.graph
    home = _home_slots(problem, device)
    roots = np.flatnonzero(graph.output_alias == NONE)
    makers = graph.output_op[roots]
    received = _received(problem, timeline.transfer_output, timeline.transfer_dst)
    keys, slot = np.unique(np.concatenate([home[roots], received]), return_inverse=True)
    taken_ns, size, left_ns = (
        np.full(len(keys), timeline.end_ns.max()),
        np.zeros(len(keys), np.int64),
        np.zeros(len(keys), np.int64),
    )
    np.minimum.at(taken_ns, slot, np.concatenate([timeline.start_ns[makers], timeline.transfer_start_ns]))
    np.maximum.at(size, slot[len(roots) :], graph.output_bytes[timeline.transfer_output])
    # a device that receives a root that it produced keeps the one buffer
    size[slot[: len(roots)]] = graph.output_bytes[roots]
    data = np.flatnonzero(graph.edge_data != NONE)
    touching = np.concatenate([graph.edge_dst[data], graph.output_op])
    touched = _on(
        problem, home, device, np.concatenate([graph.edge_data[data], np.arange(len(home))]), device[touching]
    )
    results = np.flatnonzero(graph.output_is_result)
    holders = np.concatenate([touched, home[timeline.transfer_output], home[results]])
    ends = np.concatenate(
        [timeline.end_ns[touching], timeline.transfer_end_ns, np.full(len(results), timeline.end_ns.max())]
    )
    np.maximum.at(left_ns, np.searchsorted(keys, holders), ends)
    return _Slots(keys, taken_ns, left_ns, size)


def _home_slots(problem: Problem, device: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " outputs"]:
    """The slot of each output on its op's device.

    An alias shares the slot of the output that it names, whether produced or received on the device.
    """
    graph, count = problem.graph, problem.num_devices
    home = np.arange(len(graph.output_op)) * count + device[graph.output_op]
    table = buffers(graph)
    for alias, output in zip(table.alias.tolist(), table.alias_of.tolist(), strict=True):
        here = device[graph.output_op[alias]]
        home[alias] = _on(problem, home, device, np.array([output]), np.array([here]))[0]
    return home


def _on(
    problem: Problem,
    home: Int64[np.ndarray, " outputs"],
    device: Int32[np.ndarray, " ops"],
    output: Int64[np.ndarray, " n"],
    here: Int32[np.ndarray, " n"],
) -> Int64[np.ndarray, " n"]:
    """The slots of outputs on devices that produce or receive them."""
    return np.where(device[problem.graph.output_op[output]] == here, home[output], _received(problem, output, here))


def _received(
    problem: Problem, output: Int64[np.ndarray, " n"], there: Int32[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"]:
    """The slots of outputs on devices that receive them."""
    graph, mode = problem.graph, problem.cluster.device_received[there]
    root = graph.output_root[output]
    apart = (mode == OUTPUTS) | ((mode == PARTS) & (graph.output_bytes[output] < graph.output_bytes[root]))
    return np.where(apart, output, root) * problem.num_devices + there


def streams(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """The stream of each op: the first stream of its device that is free when the op starts, counted from 0."""
    stream_of = np.zeros(problem.num_ops, dtype=np.int64)
    free_ns = [[0] * count for count in problem.cluster.streams.tolist()]
    for op in np.lexsort((timeline.end_ns, timeline.start_ns)).tolist():
        free, start = free_ns[int(device[op])], int(timeline.start_ns[op])
        stream_of[op] = next(stream for stream, end in enumerate(free) if end <= start)
        free[stream_of[op]] = int(timeline.end_ns[op])
    return stream_of
