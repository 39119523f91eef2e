"""The critical chain of a step that ran: what its last op waited for, what that waited for, and so on back to the start.

An op waits for an input to arrive or for its device to have room, a transfer for its source to end or for its channel to be free: so what
keeps a device or a link busy is on the chain where others wait for it: the critical path of a schedule, machines included.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.schedules.arrivals import Arrivals, arrivals, ending


class Waiting(NamedTuple):
    """What every op and every transfer of a step waited for; transfer t is the node of number t + ops.

    `behind` is the node whose end let a node start, NONE where nothing did or what did is none of the above (a device that copies, a
    receive channel). `op` of an op is itself, of a transfer its sender. `queued` says that a node waited for its device or a channel, where
    another order may help.
    """

    behind: Int64[np.ndarray, " nodes"]
    start_ns: Int64[np.ndarray, " nodes"]
    op: Int64[np.ndarray, " nodes"]
    queued: Bool[np.ndarray, " nodes"]
    ready_ns: Int64[np.ndarray, " ops"]  # when the last input had arrived

    def chain(self, node: int) -> Int64[np.ndarray, " chain"]:
        """The nodes that a node waited for, one after the other, from the last to the first; itself first."""
        found, behind = [node], self.behind.tolist()
        while (node := behind[node]) != NONE:
            found.append(node)
        return np.array(found, dtype=np.int64)


def waiting(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Waiting:
    """What ops and transfers waited for in a step of these devices."""
    graph, found = problem.graph, arrivals(problem, device, timeline)
    source = graph.output_op[timeline.transfer_output].astype(np.int64)
    ready_ns = np.zeros(problem.num_ops, dtype=np.int64)
    np.maximum.at(ready_ns, graph.edge_dst, found.time_ns)
    ops = _behind_ops(problem, device, timeline, found)
    transfers = _behind_transfers(problem, timeline, source)
    blocked = (timeline.start_ns > ready_ns) & (ops != NONE)
    late = (transfers >= problem.num_ops) | (timeline.receive_start_ns > timeline.transfer_end_ns)
    return Waiting(
        behind=np.concatenate([ops, transfers]),
        start_ns=np.concatenate([timeline.start_ns, timeline.transfer_start_ns]),
        op=np.concatenate([np.arange(problem.num_ops), source]),
        queued=np.concatenate([blocked, late]),
        ready_ns=ready_ns,
    )


def chain_ns(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """How long the end of the step waited for each op, its transfers included; 0 off the chain, the step time in total."""
    waits, last = waiting(problem, device, timeline), int(timeline.end_ns.argmax())
    chain = waits.chain(last)
    start_ns = waits.start_ns[chain]
    waited = np.zeros(problem.num_ops, dtype=np.int64)
    np.add.at(waited, waits.op[chain], np.append(timeline.end_ns[last], start_ns[:-1]) - start_ns)
    return waited


def _behind_ops(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline, found: Arrivals) -> Int64[np.ndarray, " ops"]:
    """Of what ends as an op starts, an input (or the transfer that brings it) if there is one, else what ran on its device."""
    graph = problem.graph
    behind = ending(np.stack([device, timeline.end_ns]), np.stack([device, timeline.start_ns]))
    through = np.where(found.transfer == NONE, graph.edge_src, problem.num_ops + found.transfer)
    last = np.flatnonzero(found.time_ns == timeline.start_ns[graph.edge_dst])
    behind[graph.edge_dst[last]] = through[last]
    return behind


def _behind_transfers(problem: Problem, timeline: Timeline, source: Int64[np.ndarray, " transfers"]) -> Int64[np.ndarray, " transfers"]:
    """The source where a transfer starts as that ends, else the transfer whose end frees the channel, else the source all the same."""
    start_ns, end_ns, cluster = timeline.transfer_start_ns, timeline.transfer_end_ns, problem.cluster
    channel = cluster.link_channel[cluster.link_index[timeline.transfer_src, timeline.transfer_dst]].astype(np.int64)
    before = ending(np.stack([channel, end_ns]), np.stack([channel, start_ns]))
    at_once = (timeline.end_ns[source] == start_ns) | (before == NONE)
    return np.where(at_once, source, problem.num_ops + before)
