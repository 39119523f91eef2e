"""Schedules: the priorities by which devices choose among ready ops (EXECUTION_MODEL.md, Schedules).

`fifo` has none, `critical-path` gives every op the length of the path that remains behind it in this placement,
`given` takes the planner's own. Ranks are exact integers, whatever order the graph's document has.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check
from weakref import WeakKeyDictionary

import numba
import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import CONTROL
from gnnplace.placement import Placement, missing_link
from gnnplace.problem import Problem


class Delays(NamedTuple):
    """What ranks need of a problem, in compact arrays. `edge_data` is an output's number, or `CONTROL`."""

    order: Int32[np.ndarray, " ops"]
    out_ptr: Int32[np.ndarray, " ops_plus_1"]
    edge_dst: Int32[np.ndarray, " edges"]
    edge_data: Int32[np.ndarray, " edges"]
    time_ns: Int64[np.ndarray, "ops devices"]
    transfer_ns: Int64[np.ndarray, "outputs rates"]
    link_index: Int32[np.ndarray, "devices devices"]
    link_rate: Int32[np.ndarray, " links"]
    link_latency_ns: Int64[np.ndarray, " links"]


_delays: WeakKeyDictionary[Problem, Delays] = WeakKeyDictionary()


def delays(problem: Problem) -> Delays:
    """The arrays of a problem, built once for as long as it lives."""
    if problem not in _delays:
        graph, cluster = problem.graph, problem.cluster
        in_document_order = bool((graph.edge_src < graph.edge_dst).all())  # then memory is read in sequence
        _delays[problem] = Delays(
            order=compact(np.arange(graph.num_ops) if in_document_order else graph.order, np.int32),
            out_ptr=compact(graph.out_ptr, np.int32),
            edge_dst=compact(graph.edge_dst, np.int32),
            edge_data=compact(graph.edge_data, np.int32),
            time_ns=compact(problem.time_ns, np.int64),
            transfer_ns=compact(problem.transfer_ns, np.int64),
            link_index=compact(cluster.link_index, np.int32),
            link_rate=compact(problem.link_rate, np.int32),
            link_latency_ns=compact(cluster.link_latency_ns, np.int64),
        )
    return _delays[problem]


def compact(array: np.ndarray, dtype: type) -> np.ndarray:
    """The array as a kernel takes it: contiguous, of this type, read-only (so that a kernel is compiled once)."""
    view: np.ndarray = np.ascontiguousarray(array, dtype=dtype).view()
    view.setflags(write=False)
    return view


def priorities(problem: Problem, placement: Placement) -> Int64[np.ndarray, " ops"]:
    """The priority of every op under the placement's schedule, higher first.

    Raises ValueError where a critical path needs a link that does not exist.
    """
    if placement.schedule == "fifo":
        return np.zeros(problem.num_ops, dtype=np.int64)
    if placement.priority is not None:
        return placement.priority
    return rank_ns(problem, placement.device)


def rank_ns(problem: Problem, device: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Nanoseconds from the start of each op to the end of the longest path behind it, transfers without waiting.

    Raises ValueError where an edge needs a link that does not exist.
    """
    if (reason := missing_link(problem, device)) is not None:
        raise ValueError(f"critical-path: {reason}")
    rank = np.empty(problem.num_ops, dtype=np.int64)
    fill_rank(delays(problem), device.copy(), rank)  # a copy is writable, like the simulator's rows: one compiled kernel
    return rank


@numba.njit(cache=True, nogil=True)
@no_type_check
def fill_rank(delays, device, rank):
    """`rank[i] = time[i] + max(0, max over consumers j of (delay(i, j) + rank[j]))`, last op first; every link must exist."""
    edge_dst, edge_data, transfer_ns = delays.edge_dst, delays.edge_data, delays.transfer_ns
    for position in range(len(delays.order) - 1, -1, -1):
        op = delays.order[position]
        here = device[op]
        behind = 0
        for edge in range(delays.out_ptr[op], delays.out_ptr[op + 1]):
            dst = edge_dst[edge]
            path = rank[dst]
            there = device[dst]
            if there != here:
                link = delays.link_index[here, there]
                latency = delays.link_latency_ns[link]
                output = edge_data[edge]
                path += max(1, latency) if output == CONTROL else latency + transfer_ns[output, delays.link_rate[link]]
            behind = max(behind, path)
        rank[op] = delays.time_ns[op, here] + behind
