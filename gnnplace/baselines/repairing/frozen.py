"""A step with frozen times: moved ops keep their start and end, so that memory after a move is quick to estimate.

Time is divided into `SLICES` slices in which equally many ops start. A buffer counts in every slice that its life
touches, so the bytes of a slice are an upper bound on those at any time within it. The life of a buffer follows
docs/execution-model.md#memory, with one simplification: a device that keeps parts of a root in separate buffers counts
like one that does not.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt32

from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.schedules.buffers import buffers

SLICES = 256


class Touches(NamedTuple):
    """The touches of each root, by op: those of root r are the ops `op[ptr[r]:ptr[r+1]]`.
    `of_op[op_ptr[i]:op_ptr[i+1]]` are op i's roots.

    `bytes` is the largest output of the root that the op reads, which is what another device has to be sent; 0 where it
    only produces.
    """

    ptr: Int64[np.ndarray, " roots_plus_1"]
    op: UInt32[np.ndarray, " touches"]
    bytes: Int64[np.ndarray, " touches"]
    result: Bool[np.ndarray, " touches"]  # the op's own output is a result: the buffer stays to the end
    op_ptr: UInt32[np.ndarray, " ops_plus_1"]
    of_op: UInt32[np.ndarray, " touches"]
    root_op: UInt32[np.ndarray, " roots"]
    root_bytes: Int64[np.ndarray, " roots"]
    sent_ns: Int64[np.ndarray, "roots rates"]  # how long the root occupies a channel


class Frozen(NamedTuple):
    """The slices in which ops run and buffers are sent, and the touches, times and links of the problem."""

    touches: Touches
    first: Int32[np.ndarray, " ops"]
    last: Int32[np.ndarray, " ops"]
    leaves: Int32[np.ndarray, " roots"]  # the last slice in which a transfer sends it from the device that produces it
    arrives: Int32[np.ndarray, "roots devices"]  # the first slice in which it is, or could be, on another device
    fixed: Bool[np.ndarray, "roots devices"]  # True: it arrives in that slice; False: just before its first reader
    persistent: Int64[np.ndarray, " ops"]
    workspace: Int64[np.ndarray, " ops"]
    time_ns: Int64[np.ndarray, "ops devices"]
    allowed: Bool[np.ndarray, "ops devices"]
    link: Int32[np.ndarray, "devices devices"]
    rate: Int32[np.ndarray, " links"]
    channel: Int32[np.ndarray, " links"]


_touches: WeakKeyDictionary[Problem, Touches] = WeakKeyDictionary()


def frozen(
    problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline, just_in_time: bool = False
) -> Frozen:
    """The step of a placement with frozen times.

    A root that is not sent to a device now would arrive there at once. With `just_in_time` it would arrive just before
    its first reader, which is closer to the truth if a channel is always busy.
    """
    graph, touches = problem.graph, touches_of(problem)
    edges = np.unique(np.quantile(timeline.start_ns, np.linspace(0, 1, SLICES + 1)[:-1]).astype(np.int64))

    def slice_of(time_ns: Int64[np.ndarray, " times"]) -> Int32[np.ndarray, " times"]:
        return np.maximum(np.searchsorted(edges, time_ns, side="right") - 1, 0).astype(np.int32)

    first = slice_of(timeline.start_ns)
    last = np.maximum(first, slice_of(timeline.end_ns - 1))
    root = buffers(graph).output_root[timeline.transfer_output].astype(np.int64)
    leaves = last[touches.root_op]
    np.maximum.at(leaves, root, slice_of(timeline.transfer_end_ns - 1))
    arrives = np.repeat(last[touches.root_op][:, None], problem.num_devices, axis=1)
    received = np.full(arrives.shape, len(edges), dtype=np.int32)
    np.minimum.at(received, (root, timeline.transfer_dst), slice_of(timeline.transfer_start_ns))
    return Frozen(
        touches=touches, first=first, last=last, leaves=leaves,
        arrives=np.where(received < len(edges), received, arrives).astype(np.int32),
        fixed=(received < len(edges)) | (not just_in_time), persistent=graph.persistent_bytes.astype(np.int64),
        workspace=graph.workspace_bytes.astype(np.int64), time_ns=problem.time_ns, allowed=problem.allowed,
        link=problem.cluster.link_index.astype(np.int32), rate=problem.link_rate,
        channel=problem.cluster.link_channel.astype(np.int32),
    )  # fmt: skip


def touches_of(problem: Problem) -> Touches:
    """The touches of a problem's roots, built once and kept as long as the problem lives."""
    if problem not in _touches:
        _touches[problem] = _build(problem)
    return _touches[problem]


def _build(problem: Problem) -> Touches:
    graph, held = problem.graph, buffers(problem.graph)
    num_roots = len(held.root_op)
    op = np.repeat(np.arange(graph.num_ops), np.diff(held.touch_ptr).astype(np.int64))
    key, data = op * num_roots + held.touch_root, np.flatnonzero(graph.edge_data != NONE)
    read = np.zeros(len(key), dtype=np.int64)
    at = np.searchsorted(key, graph.edge_dst[data] * np.int64(num_roots) + held.output_root[graph.edge_data[data]])
    np.maximum.at(read, at, graph.output_bytes[graph.edge_data[data]])
    result = np.isin(key, held.result_op.astype(np.int64) * num_roots + held.result_root)
    order = np.argsort(held.touch_root, kind="stable")
    ptr = np.searchsorted(held.touch_root[order], np.arange(num_roots + 1))
    roots = np.flatnonzero(graph.output_alias == NONE)
    return Touches(
        ptr.astype(np.int64), op[order].astype(np.uint32), read[order], result[order],
        held.touch_ptr, held.touch_root, held.root_op, held.root_bytes,
        np.ascontiguousarray(problem.transfer_ns[roots]),
    )  # fmt: skip
