"""The arrival time of every edge in a step, read off its timeline; and which op or transfer ends as another starts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline


class Arrivals(NamedTuple):
    """For each edge: when its tensor or control signal is on the consumer's device, and the transfer that brings it (`NONE`: none does)."""

    time_ns: Int64[np.ndarray, " edges"]
    transfer: Int64[np.ndarray, " edges"]


def arrivals(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Arrivals:
    """The arrivals of every edge; `device` and `timeline` are the placement of the step and its timeline."""
    graph, cluster = problem.graph, problem.cluster
    here, there = device[graph.edge_src], device[graph.edge_dst]
    time_ns, transfer = timeline.end_ns[graph.edge_src].copy(), np.full(graph.num_edges, NONE, dtype=np.int64)
    crosses, carries = here != there, graph.edge_data != NONE
    control, data = np.flatnonzero(crosses & ~carries), np.flatnonzero(crosses & carries)
    time_ns[control] += np.maximum(1, cluster.link_latency_ns[cluster.link_index[here[control], there[control]]])
    key = timeline.transfer_output * problem.num_devices + timeline.transfer_dst
    order = np.argsort(key)
    transfer[data] = order[np.searchsorted(key[order], graph.edge_data[data] * problem.num_devices + there[data])]
    time_ns[data] = arrived_ns(problem, timeline)[transfer[data]]
    return Arrivals(time_ns, transfer)


def arrived_ns(problem: Problem, timeline: Timeline) -> Int64[np.ndarray, " transfers"]:
    """The arrival of each transfer: the latency after it leaves its last channel (the receive channel where the link has one)."""
    link = problem.cluster.link_index[timeline.transfer_src, timeline.transfer_dst]
    return np.maximum(timeline.transfer_end_ns, timeline.receive_end_ns) + problem.cluster.link_latency_ns[link]


def ending(ends: Int64[np.ndarray, "2 rows"], starts: Int64[np.ndarray, "2 rows"]) -> Int64[np.ndarray, " rows"]:
    """For each column (place, start) of `starts`, the first column of `ends` with the same place and time, or `NONE`."""
    order = np.lexsort(ends[::-1])
    width = int(max(ends[1].max(initial=0), starts[1].max(initial=0))) + 1
    key, wanted = (rows[0] * width + rows[1] for rows in (ends[:, order], starts))
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[at] == wanted, order[at], NONE) if len(key) else np.full(len(wanted), NONE)
