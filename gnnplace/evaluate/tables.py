"""The arrays that the simulator's kernel reads and writes; those of a problem are built once for as long as it lives."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int8, Int32, Int64, UInt32

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problem import Problem
from gnnplace.transforms.schedule import NOTHING, Delays, compact, delays

MAX_MEMORY_BYTES = 2**62

_tables: WeakKeyDictionary[Problem, Tables] = WeakKeyDictionary()


class Tables(NamedTuple):
    """What the kernel needs of a problem. Touches lie by op; `root_touch` lists them by root, the producer's first."""

    delays: Delays
    num_inputs: Int32[np.ndarray, " ops"]
    leader: UInt32[np.ndarray, " ops"]  # the first op of the colocation group
    allowed: Bool[np.ndarray, "ops devices"]
    persistent_bytes: Int64[np.ndarray, " ops"]
    workspace_bytes: Int64[np.ndarray, " ops"]
    start_bytes: Int64[np.ndarray, " ops"]  # workspace and the outputs that are not aliases
    output_bytes: Int64[np.ndarray, " outputs"]
    output_touch: UInt32[np.ndarray, " outputs"]
    edge_touch: UInt32[np.ndarray, " edges"]  # the consumer's touch, NOTHING for a control edge
    result_touch: UInt32[np.ndarray, " results"]
    touch_ptr: UInt32[np.ndarray, " ops_plus_1"]
    root_ptr: UInt32[np.ndarray, " roots_plus_1"]
    root_touch: UInt32[np.ndarray, " touches"]
    root_touch_op: UInt32[np.ndarray, " touches"]
    root_bytes: Int64[np.ndarray, " roots"]
    streams: Int64[np.ndarray, " devices"]
    link_channel: UInt32[np.ndarray, " links"]
    link_src: UInt32[np.ndarray, " links"]
    link_dst: UInt32[np.ndarray, " links"]
    num_channels: int


class Steps(NamedTuple):
    """What comes out, one row a sample. `legal` is False where an op is not allowed or a group is split."""

    step_time_ns: Int64[np.ndarray, " samples"]
    legal: Bool[np.ndarray, " samples"]
    linked: Bool[np.ndarray, " samples"]  # False without a needed link: then there is no step time and no peak
    peak_memory_bytes: Int64[np.ndarray, "samples devices"]
    busy_ns: Int64[np.ndarray, "samples devices"]
    transferred_bytes: Int64[np.ndarray, " samples"]
    transfers: Int64[np.ndarray, " samples"]


class Trace(NamedTuple):
    """When every op started, and every transfer: a row a sample, or no rows where nobody asked."""

    start_ns: Int64[np.ndarray, "rows ops"]
    transfer: Int64[np.ndarray, "rows transfers 5"]  # output, source device, destination, start, end


class Scratch(NamedTuple):
    """Working memory of one thread."""

    slot_of: UInt32[np.ndarray, " touches"]
    holds: Int32[np.ndarray, " slots"]
    size: Int64[np.ndarray, " slots"]
    live: Int8[np.ndarray, " slots"]
    local: UInt32[np.ndarray, " ops"]  # first edge to a consumer on the same device
    behind: UInt32[np.ndarray, " edges"]  # next edge of the same list
    message_ptr: UInt32[np.ndarray, " ops_plus_1"]
    message_edge: UInt32[np.ndarray, " edges"]
    message_link: UInt32[np.ndarray, " edges"]
    message_slot: UInt32[np.ndarray, " edges"]  # where it arrives, NOTHING for control
    message_source: UInt32[np.ndarray, " edges"]  # the slot that it is sent from
    message_ns: Int64[np.ndarray, " edges"]  # its occupation of the channel
    message_next: UInt32[np.ndarray, " edges"]
    missing: Int32[np.ndarray, " ops"]
    ready_ns: Int64[np.ndarray, " ops"]
    first_row: UInt32[np.ndarray, " devices_plus_1"]
    queues: Int64[np.ndarray, "3 2 ops"]  # pending, ready, running: pairs


class Touches(NamedTuple):
    """Each op with each root that it consumes or produces, by op; and the same by root, the producer first."""

    ptr: Int64[np.ndarray, " ops_plus_1"]
    of_output: Int64[np.ndarray, " outputs"]
    of_edge: Int64[np.ndarray, " edges"]
    root_ptr: Int64[np.ndarray, " roots_plus_1"]
    by_root: Int64[np.ndarray, " touches"]
    by_root_op: Int64[np.ndarray, " touches"]


def tables(problem: Problem) -> Tables:
    """The kernel's arrays. Raises ValueError where memory could exceed 64 bits."""
    if problem not in _tables:
        _tables[problem] = _build(problem)
    return _tables[problem]


def scratch(tables: Tables) -> Scratch:
    """Working memory for one thread, of a size for any placement of the problem; nothing in it outlives a step."""
    num_ops, num_devices = tables.allowed.shape
    num_edges, num_touches = len(tables.edge_touch), len(tables.root_touch)

    def ids(count: int) -> UInt32[np.ndarray, " count"]:
        return np.empty(count, dtype=np.uint32)

    return Scratch(
        slot_of=ids(num_touches),
        holds=np.empty(num_touches, dtype=np.int32),
        size=np.empty(num_touches, dtype=np.int64),
        live=np.empty(num_touches, dtype=np.int8),
        local=ids(num_ops),
        behind=ids(num_edges),
        message_ptr=ids(num_ops + 1),
        message_edge=ids(num_edges),
        message_link=ids(num_edges),
        message_slot=ids(num_edges),
        message_source=ids(num_edges),
        message_ns=np.empty(num_edges, dtype=np.int64),
        message_next=ids(num_edges),
        missing=np.empty(num_ops, dtype=np.int32),
        ready_ns=np.empty(num_ops, dtype=np.int64),
        first_row=ids(num_devices + 1),
        queues=np.empty((3, 2, num_ops), dtype=np.int64),
    )


def touches(graph: ComputationGraph) -> Touches:
    """Every distinct pair of an op and a root that it touches, through data inputs and outputs."""
    root = graph.output_root
    num_outputs, data = len(root), np.flatnonzero(graph.edge_data != NONE)
    edge_key = graph.edge_dst[data].astype(np.int64) * num_outputs + root[graph.edge_data[data]]
    output_key = graph.output_op.astype(np.int64) * num_outputs + root
    keys = np.unique(np.concatenate([edge_key, output_key]))
    op, touched = keys // max(1, num_outputs), keys % max(1, num_outputs)
    of_edge = np.full(graph.num_edges, NOTHING, dtype=np.int64)
    of_edge[data] = np.searchsorted(keys, edge_key)
    by_root = np.lexsort((op, graph.output_op[touched] != op, touched))
    return Touches(
        ptr=np.searchsorted(op, np.arange(graph.num_ops + 1)),
        of_output=np.searchsorted(keys, output_key),
        of_edge=of_edge,
        root_ptr=np.searchsorted(touched[by_root], np.append(_roots(graph), num_outputs)),
        by_root=by_root,
        by_root_op=op[by_root],
    )


def _roots(graph: ComputationGraph) -> Int64[np.ndarray, " roots"]:
    return np.flatnonzero(graph.output_alias == NONE)


def _build(problem: Problem) -> Tables:
    graph, cluster, touch = problem.graph, problem.cluster, touches(problem.graph)
    _check_memory(problem)
    start_bytes = graph.workspace_bytes.copy()
    np.add.at(start_bytes, graph.output_op[_roots(graph)], graph.output_bytes[_roots(graph)])
    return Tables(
        delays=delays(problem),
        num_inputs=compact(np.diff(graph.in_ptr), np.int32),
        leader=compact(_leader(graph), np.uint32),
        allowed=compact(problem.allowed, np.bool_),
        persistent_bytes=compact(graph.persistent_bytes, np.int64),
        workspace_bytes=compact(graph.workspace_bytes, np.int64),
        start_bytes=compact(start_bytes, np.int64),
        output_bytes=compact(graph.output_bytes, np.int64),
        output_touch=compact(touch.of_output, np.uint32),
        edge_touch=compact(touch.of_edge, np.uint32),
        result_touch=compact(touch.of_output[graph.output_is_result], np.uint32),
        touch_ptr=compact(touch.ptr, np.uint32),
        root_ptr=compact(touch.root_ptr, np.uint32),
        root_touch=compact(touch.by_root, np.uint32),
        root_touch_op=compact(touch.by_root_op, np.uint32),
        root_bytes=compact(graph.output_bytes[_roots(graph)], np.int64),
        streams=compact(cluster.streams, np.int64),
        link_channel=compact(cluster.link_channel, np.uint32),
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


def _check_memory(problem: Problem) -> None:
    graph = problem.graph
    columns = (graph.persistent_bytes, graph.workspace_bytes, graph.output_bytes, graph.edge_bytes)
    most = sum(float(column.astype(float).sum()) for column in columns)
    if most > MAX_MEMORY_BYTES:
        raise ValueError(f"{graph.name}: a device could hold {most:.3g} bytes, more than 64 bits hold")
