"""The arrays that the simulator's kernel reads and writes.

The arrays of a problem are built once and kept as long as the problem lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Int64, Shaped, UInt32

from gnnplace.cluster import NO_CHANNEL, Cluster
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import Problem
from gnnplace.schedules.buffers import Buffers, buffers
from gnnplace.schedules.ranks import Delays, compact, delays

LINE_BYTES = 64  # the unit in which a processor's cache reads memory

OP = np.dtype(
    [
        ("ready_ns", np.int64),  # the arrival of the latest input so far
        ("time_ns", np.int64),
        ("priority", np.int64),
        ("start_bytes", np.int64),  # allocated at the start: the workspace and all outputs but aliases
        ("workspace_bytes", np.int64),
        ("missing", np.uint32),  # number of inputs that have not arrived
        ("device", np.uint32),
        ("edge", np.uint32),  # its out-edges are edge..edge_end
        ("edge_end", np.uint32),
        ("touch", np.uint32),
        ("touch_end", np.uint32),
    ]
)
SLOT = np.dtype(
    [
        ("size", np.int64),
        ("holds", np.uint32),  # number of ops and transfers that hold it
        ("live", np.uint32),  # 1 once allocated; on the device that produces the root, from the start
    ]
)
MESSAGE = np.dtype(
    [
        ("time_ns", np.int64),  # for which it occupies each channel
        ("edge", np.uint32),  # the first of the list of edges that it delivers to
        ("link", np.uint32),
        ("from_slot", np.uint32),  # NOTHING once it has left its source
        ("to_slot", np.uint32),
        ("entry", np.uint32),  # its row of the trace
        ("next", np.uint32),  # message in the queue of the channel
    ],
    align=True,
)
PAIR = np.dtype([("a", np.int64), ("b", np.int64)])

_tables: WeakKeyDictionary[Problem, Tables] = WeakKeyDictionary()
# kept for reuse: the first use of new memory is slow
_idle: WeakKeyDictionary[Problem, list[Scratch]] = WeakKeyDictionary()


class Tables(NamedTuple):
    """A problem as the kernel reads it."""

    delays: Delays
    buffers: Buffers
    num_inputs: UInt32[np.ndarray, " ops"]
    leader: UInt32[np.ndarray, " ops"]  # the first op of the colocation group
    allowed: Bool[np.ndarray, "ops devices"]
    persistent_bytes: Int64[np.ndarray, " ops"]
    workspace_bytes: Int64[np.ndarray, " ops"]
    start_bytes: Int64[np.ndarray, " ops"]
    received: UInt32[np.ndarray, " devices"]  # see `cluster.RECEIVED`
    apart: bool  # some device keeps parts of one root in separate buffers; `buffers` fits that
    streams: Int64[np.ndarray, " devices"]
    device_memory: UInt32[np.ndarray, " devices"]  # the memory that the device shares, or NOTHING
    contended_ns: Int64[np.ndarray, "ops devices"]
    link_channel: UInt32[np.ndarray, " links"]
    link_receive_channel: UInt32[np.ndarray, " links"]  # or NOTHING
    device_channel: UInt32[np.ndarray, " devices"]  # the channel that a device is, or NOTHING
    channel_device: UInt32[np.ndarray, " channels"]  # the device that a channel is, or NOTHING
    link_src: UInt32[np.ndarray, " links"]
    link_dst: UInt32[np.ndarray, " links"]
    num_channels: int


class Steps(NamedTuple):
    """The results, one row per sample.

    `legal` is False if an op is not allowed on its device or a colocation group is split.
    """

    step_time_ns: Int64[np.ndarray, " samples"]
    legal: Bool[np.ndarray, " samples"]
    # False if a needed link is missing; the step time and the peak are then undefined
    linked: Bool[np.ndarray, " samples"]
    peak_memory_bytes: Int64[np.ndarray, "samples devices"]
    busy_ns: Int64[np.ndarray, "samples devices"]
    transferred_bytes: Int64[np.ndarray, " samples"]
    transfers: Int64[np.ndarray, " samples"]
    occupied_ns: Int64[np.ndarray, "samples channels"]  # the time that each channel spent on transfers


class Timelines(NamedTuple):
    """The start and end of every op and every transfer: one row per sample, or no rows without a timeline."""

    start_ns: Int64[np.ndarray, "rows ops"]
    end_ns: Int64[np.ndarray, "rows ops"]
    # output, source, destination, start, end, receive start, receive end (-1: none)
    transfer: Int64[np.ndarray, "rows transfers 7"]


class Scratch(NamedTuple):
    """Working memory of one thread.

    The events of a large graph spend more time on memory access than on arithmetic. So all fields of an op, a slot or a
    message form one record within one cache line, and the kernel prefetches it.
    """

    ops: Shaped[np.ndarray, " ops"]  # of `OP`
    slots: Shaped[np.ndarray, " slots"]  # of `SLOT`: root r on device d is `r * devices + d`
    own_slot: UInt32[np.ndarray, " outputs"]  # of each output on its op's device; empty unless `apart`
    touch_slot: UInt32[np.ndarray, " touches"]  # empty unless `apart`
    messages: Shaped[np.ndarray, " edges"]  # of `MESSAGE`, in the order of sending
    behind: UInt32[np.ndarray, " edges"]  # the next edge of the same list
    first_row: UInt32[np.ndarray, " devices_plus_1"]
    queues: Shaped[np.ndarray, "3 ops"]  # of `PAIR`: pending, ready, running


def tables(problem: Problem) -> Tables:
    """The kernel's arrays for a problem."""
    if problem not in _tables:
        _tables[problem] = _build(problem)
    return _tables[problem]


@contextmanager
def borrowed_scratch(problem: Problem) -> Iterator[Scratch]:
    """Working memory for one thread at a time. It is kept for later use as long as the problem lives."""
    idle = _idle.setdefault(problem, [])
    try:
        memory = idle.pop()
    except IndexError:
        memory = scratch(tables(problem))
    yield memory
    idle.append(memory)


def scratch(tables: Tables) -> Scratch:
    """New working memory for one thread, large enough for any placement of the problem.

    No step depends on its contents.
    """
    (num_ops, num_devices), num_edges = tables.allowed.shape, len(tables.delays.edges)
    held, num_slots = tables.buffers, len(tables.buffers.root_op) * num_devices
    assert num_slots < 2**32  # 64 GiB of slots
    return Scratch(
        ops=_in_lines(num_ops, OP),
        slots=_in_lines(num_slots, SLOT),
        touch_slot=np.empty(len(held.touch_root) if tables.apart else 0, dtype=np.uint32),
        own_slot=np.empty(len(held.output_op) if tables.apart else 0, dtype=np.uint32),
        messages=_in_lines(num_edges, MESSAGE),
        behind=np.empty(num_edges, dtype=np.uint32),
        first_row=np.empty(num_devices + 1, dtype=np.uint32),
        queues=np.empty((3, num_ops), dtype=PAIR),
    )


def _in_lines(count: int, record: np.dtype) -> Shaped[np.ndarray, " count"]:
    """Records aligned to cache lines: a record whose size divides a line never lies across two."""
    room = np.empty(count * record.itemsize + LINE_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % LINE_BYTES
    return room[start : start + count * record.itemsize].view(record)


def _build(problem: Problem) -> Tables:
    graph, cluster = problem.graph, problem.cluster
    apart = bool(cluster.device_received.any())
    held = buffers(graph, apart)
    start_bytes = graph.workspace_bytes.copy()
    np.add.at(start_bytes, held.root_op, held.root_bytes)
    return Tables(
        delays=delays(problem),
        buffers=held,
        num_inputs=compact(np.diff(graph.in_ptr), np.uint32),
        leader=compact(_leader(graph), np.uint32),
        allowed=compact(problem.allowed, np.bool_),
        persistent_bytes=compact(graph.persistent_bytes, np.int64),
        workspace_bytes=compact(graph.workspace_bytes, np.int64),
        start_bytes=compact(start_bytes, np.int64),
        received=compact(cluster.device_received, np.uint32),
        apart=apart,
        streams=compact(cluster.streams, np.int64),
        device_memory=compact(
            cluster.device_memory if problem.contended_ns is not None else np.full(cluster.num_devices, NONE), np.uint32
        ),
        contended_ns=compact(problem.slowest_ns, np.int64),
        link_channel=compact(cluster.link_channel, np.uint32),
        link_receive_channel=compact(cluster.link_receive_channel, np.uint32),
        device_channel=compact(cluster.device_channel, np.uint32),
        channel_device=compact(_channel_device(cluster), np.uint32),
        link_src=compact(np.array([cluster.device_names.index(link.src) for link in cluster.links]), np.uint32),
        link_dst=compact(np.array([cluster.device_names.index(link.dst) for link in cluster.links]), np.uint32),
        num_channels=cluster.num_channels,
    )


def _leader(graph: ComputationGraph) -> Int32[np.ndarray, " ops"]:
    leader = np.arange(graph.num_ops, dtype=np.int32)
    members = np.flatnonzero(graph.colocation.index != NONE)
    _, first, group = np.unique(graph.colocation.index[members], return_index=True, return_inverse=True)
    leader[members] = members[first[group]]
    return leader


def _channel_device(cluster: Cluster) -> Int64[np.ndarray, " channels"]:
    table = np.full(cluster.num_channels, NONE, dtype=np.int64)
    copying = np.flatnonzero(cluster.device_channel != NO_CHANNEL)
    table[cluster.device_channel[copying]] = copying
    return table
