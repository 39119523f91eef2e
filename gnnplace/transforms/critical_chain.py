"""The critical chain of a step that ran: what its last op waited for, what that waited for, and so on back to the start.

An op waits for an input to arrive or for its device to have room, a transfer for its source to end or for its channel to be free: so what
keeps a device or a link busy is on the chain where others wait for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import NONE
from gnnplace.problem import Problem
from gnnplace.result import Timeline


class _Transfers(NamedTuple):
    """What the transfers of a timeline are, and when their data are there."""

    source: Int64[np.ndarray, " transfers"]  # the op that sends it
    channel: Int64[np.ndarray, " transfers"]
    start_ns: Int64[np.ndarray, " transfers"]
    end_ns: Int64[np.ndarray, " transfers"]
    key: Int64[np.ndarray, " transfers"]  # output and destination
    arrival_ns: Int64[np.ndarray, " transfers"]


def chain_ns(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """How long the end of the step waited for each op, its transfers included; 0 off the chain, the step time in total.

    Where something waits for what is none of the above (a device that copies, a receive channel) the chain ends.
    """
    transfers = _transfers(problem, timeline)
    cause = np.concatenate([_causes_of_ops(problem, device, timeline, transfers), _causes_of_transfers(timeline, transfers)]).tolist()
    start_ns = np.concatenate([timeline.start_ns, transfers.start_ns])
    op = np.concatenate([np.arange(problem.num_ops), transfers.source])
    waited = np.zeros(problem.num_ops, dtype=np.int64)
    node, until = int(timeline.end_ns.argmax()), int(timeline.end_ns.max())
    while node != NONE:
        waited[op[node]] += until - start_ns[node]
        node, until = cause[node], start_ns[node]
    return waited


def _transfers(problem: Problem, timeline: Timeline) -> _Transfers:
    cluster, graph = problem.cluster, problem.graph
    link = cluster.link_index[timeline.transfer_src, timeline.transfer_dst]
    there = np.maximum(timeline.transfer_end_ns, timeline.receive_end_ns) + cluster.link_latency_ns[link]
    return _Transfers(
        source=graph.output_op[timeline.transfer_output].astype(np.int64),
        channel=cluster.link_channel[link].astype(np.int64),
        start_ns=timeline.transfer_start_ns,
        end_ns=timeline.transfer_end_ns,
        key=timeline.transfer_output * problem.num_devices + timeline.transfer_dst,
        arrival_ns=there,
    )


def _causes_of_ops(
    problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline, transfers: _Transfers
) -> Int64[np.ndarray, " ops"]:
    """An op, or the number of ops and a transfer: of what ends as an op starts, an input if there is one, else what ran on its device."""
    graph, start_ns, end_ns = problem.graph, timeline.start_ns, timeline.end_ns
    cause = _ending(np.stack([device, end_ns]), np.stack([device, start_ns]))
    here, there = device[graph.edge_src], device[graph.edge_dst]
    latency_ns = np.append(problem.cluster.link_latency_ns, 0)[problem.cluster.link_index[here, there]]
    arrival_ns = end_ns[graph.edge_src] + np.where(here == there, 0, np.maximum(1, latency_ns))
    through = graph.edge_src.astype(np.int64)
    sent = np.flatnonzero((here != there) & (graph.edge_data != NONE))
    order = np.argsort(transfers.key)
    carried = order[np.searchsorted(transfers.key[order], graph.edge_data[sent] * problem.num_devices + there[sent])]
    arrival_ns[sent], through[sent] = transfers.arrival_ns[carried], problem.num_ops + carried
    last = np.flatnonzero(arrival_ns == start_ns[graph.edge_dst])
    cause[graph.edge_dst[last]] = through[last]
    return cause


def _causes_of_transfers(timeline: Timeline, transfers: _Transfers) -> Int64[np.ndarray, " transfers"]:
    """The source where a transfer starts as that ends, else the transfer whose end frees the channel, else the source all the same."""
    before = _ending(np.stack([transfers.channel, transfers.end_ns]), np.stack([transfers.channel, transfers.start_ns]))
    at_once = (timeline.end_ns[transfers.source] == transfers.start_ns) | (before == NONE)
    return np.where(at_once, transfers.source, len(timeline.start_ns) + before)


def _ending(ends: Int64[np.ndarray, "2 rows"], starts: Int64[np.ndarray, "2 rows"]) -> Int64[np.ndarray, " rows"]:
    """For each (place, start) the first row whose (place, end) is the same, or NONE."""
    order = np.lexsort(ends[::-1])
    width = int(max(ends[1].max(initial=0), starts[1].max(initial=0))) + 1
    key, wanted = (rows[0] * width + rows[1] for rows in (ends[:, order], starts))
    at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[at] == wanted, order[at], NONE) if len(key) else np.full(len(wanted), NONE)
