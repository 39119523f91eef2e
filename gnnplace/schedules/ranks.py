"""Ranks, the priorities of the schedule `critical-path` (docs/execution-model.md#schedule-critical-path).

The rank of an op is the length of the longest path from its start to the end of the step under a placement. It is
HEFT's upward rank with the times of the chosen devices instead of means. Ranks are exact integers and do not depend on
the order of ops in the graph's document.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Int32, Int64, Shaped, UInt32
from numpy.typing import DTypeLike

from gnnplace.cluster import NO_CHANNEL, NO_LINK
from gnnplace.compiled import kernel
from gnnplace.placement import missing_link
from gnnplace.problems import Problem

NOTHING = np.uint32(2**32 - 1)  # no output, edge or message
EDGE = np.dtype([("dst", np.uint32), ("output", np.uint32)])  # the number of an output, NOTHING for a control edge


class Delays(NamedTuple):
    """A problem as the compiled rank pass reads it.

    Index arrays are unsigned, because Numba checks every signed index for a negative value, which costs a fifth of a
    simulation.
    """

    order: UInt32[np.ndarray, " ops"]
    out_ptr: UInt32[np.ndarray, " ops_plus_1"]
    edges: Shaped[np.ndarray, " edges"]  # of `EDGE`, sorted by source and output
    time_ns: Int64[np.ndarray, "ops devices"]
    transfer_ns: Int64[np.ndarray, "outputs rates"]
    link_index: Int32[np.ndarray, "devices devices"]
    link_rate: UInt32[np.ndarray, " links"]
    link_latency_ns: Int64[np.ndarray, " links"]
    link_hops: Int64[np.ndarray, " links"]  # the number of channels that a transfer occupies, one after the other


_delays: WeakKeyDictionary[Problem, Delays] = WeakKeyDictionary()


def delays(problem: Problem) -> Delays:
    """The delays of a problem, built once and kept as long as the problem lives."""
    if problem not in _delays:
        graph, cluster = problem.graph, problem.cluster
        edges = np.empty(graph.num_edges, EDGE)
        edges["dst"], edges["output"] = graph.edge_dst, graph.edge_data.astype(np.uint32)
        in_document_order = bool((graph.edge_src < graph.edge_dst).all())  # then the pass reads memory in sequence
        _delays[problem] = Delays(
            order=compact(np.arange(graph.num_ops) if in_document_order else graph.order, np.uint32),
            out_ptr=compact(graph.out_ptr, np.uint32),
            edges=compact(edges, EDGE),
            time_ns=compact(problem.time_ns, np.int64),
            transfer_ns=compact(problem.transfer_ns, np.int64),
            link_index=compact(cluster.link_index, np.int32),
            link_rate=compact(problem.link_rate, np.uint32),
            link_latency_ns=compact(cluster.link_latency_ns, np.int64),
            link_hops=compact(1 + (cluster.link_receive_channel != NO_CHANNEL), np.int64),
        )
    return _delays[problem]


def compact(array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """The array in the form that compiled code takes: contiguous, of this dtype, and read-only.

    With one form, each function is compiled once.
    """
    view: np.ndarray = np.ascontiguousarray(array).astype(dtype, copy=False).view()
    view.setflags(write=False)
    return view


def rank_ns(problem: Problem, device: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The rank of each op in ns. A transfer counts its time on its channels and its latency, but no waiting.

    Raises ValueError if an edge needs a link that does not exist.
    """
    if (reason := missing_link(problem, device)) is not None:
        raise ValueError(f"critical-path: {reason}")
    rank = np.zeros((1, problem.num_ops), dtype=np.int64)
    # the dtype of the simulator's rows, so that one compiled function serves both
    writable = device.reshape(1, -1).astype(np.uint32)
    fill_ranks(delays(problem), writable, np.array([True]), rank)
    return rank[0]


@kernel
@no_type_check
def fill_ranks(delays, device, wanted, rank):
    """`rank[i] = time[i] + max(0, max over consumers j of (delay(i, j) + rank[j]))`, last op first, in each wanted row.

    A row stays unfinished if it needs a link that does not exist.
    """
    edges, transfer_ns = delays.edges, delays.transfer_ns
    for row in range(len(wanted)):
        linked, position = wanted[row], len(delays.order) - 1
        while linked and position >= 0:
            op = delays.order[position]
            here, behind = device[row, op], 0
            for edge in range(delays.out_ptr[op], delays.out_ptr[op + 1]):
                dst = edges[edge].dst
                path, there = rank[row, dst], device[row, dst]
                if there != here:
                    link, output = delays.link_index[here, there], edges[edge].output
                    if link == NO_LINK:
                        linked = False
                        break
                    latency = delays.link_latency_ns[link]
                    occupation = (
                        0 if output == NOTHING else transfer_ns[output, delays.link_rate[link]] * delays.link_hops[link]
                    )
                    path += max(1, latency) if output == NOTHING else latency + occupation
                behind = max(behind, path)
            rank[row, op] = delays.time_ns[op, here] + behind
            position -= 1
