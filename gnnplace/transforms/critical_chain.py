"""The critical chain of a step that ran: what its last op waited for, what that waited for, and so on back to the start.

An op waits for an input to arrive or for its device to have room, a transfer for its source to end or for its channel to be free: so what
keeps a device or a link busy is on the chain where others wait for it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import NONE
from gnnplace.problem import Problem
from gnnplace.result import Timeline
from gnnplace.transforms.arrivals import arrivals, ending


def chain_ns(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """How long the end of the step waited for each op, its transfers included; 0 off the chain, the step time in total.

    Where something waits for what is none of the above (a device that copies, a receive channel) the chain ends.
    """
    source = problem.graph.output_op[timeline.transfer_output].astype(np.int64)
    cause = np.concatenate([_causes_of_ops(problem, device, timeline), _causes_of_transfers(problem, timeline, source)]).tolist()
    start_ns = np.concatenate([timeline.start_ns, timeline.transfer_start_ns])
    op = np.concatenate([np.arange(problem.num_ops), source])
    waited = np.zeros(problem.num_ops, dtype=np.int64)
    node, until = int(timeline.end_ns.argmax()), int(timeline.end_ns.max())
    while node != NONE:
        waited[op[node]] += until - start_ns[node]
        node, until = cause[node], start_ns[node]
    return waited


def _causes_of_ops(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """An op, or the number of ops and a transfer: of what ends as an op starts, an input if there is one, else what ran on its device."""
    graph, found = problem.graph, arrivals(problem, device, timeline)
    cause = ending(np.stack([device, timeline.end_ns]), np.stack([device, timeline.start_ns]))
    through = np.where(found.transfer == NONE, graph.edge_src, problem.num_ops + found.transfer)
    last = np.flatnonzero(found.time_ns == timeline.start_ns[graph.edge_dst])
    cause[graph.edge_dst[last]] = through[last]
    return cause


def _causes_of_transfers(problem: Problem, timeline: Timeline, source: Int64[np.ndarray, " transfers"]) -> Int64[np.ndarray, " transfers"]:
    """The source where a transfer starts as that ends, else the transfer whose end frees the channel, else the source all the same."""
    start_ns, end_ns, cluster = timeline.transfer_start_ns, timeline.transfer_end_ns, problem.cluster
    channel = cluster.link_channel[cluster.link_index[timeline.transfer_src, timeline.transfer_dst]].astype(np.int64)
    before = ending(np.stack([channel, end_ns]), np.stack([channel, start_ns]))
    at_once = (timeline.end_ns[source] == start_ns) | (before == NONE)
    return np.where(at_once, source, problem.num_ops + before)
