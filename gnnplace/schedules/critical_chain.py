"""The critical chain of a step: what its last op waited for, what that op or transfer waited for, and so on back to the start.

An op waits for an input or for an idle stream of its device. A transfer waits for the op that sends it or for its channel. So the chain is
the critical path of the step, with waiting for busy devices and channels included.
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
    """What every op and every transfer of a step waited for. The nodes are the ops, then the transfers: transfer t is node t + ops.

    `behind` is the node whose end let a node start. It is `NONE` where a node waited for nothing, or for something else (a device
    that copies by itself, a receive channel). `op` is the op itself, or the sender of a transfer. `queued` is True where a node waited for
    its device or for a channel, so that another order may shorten the step.
    """

    behind: Int64[np.ndarray, " nodes"]
    start_ns: Int64[np.ndarray, " nodes"]
    op: Int64[np.ndarray, " nodes"]
    queued: Bool[np.ndarray, " nodes"]
    ready_ns: Int64[np.ndarray, " ops"]  # the arrival of the last input

    def chain(self, node: int) -> Int64[np.ndarray, " chain"]:
        """The node itself, the node it waited for, the node that one waited for, and so on back to the start of the step."""
        found, behind = [node], self.behind.tolist()
        while (node := behind[node]) != NONE:
            found.append(node)
        return np.array(found, dtype=np.int64)


def waiting(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Waiting:
    """What ops and transfers waited for; `device` and `timeline` are the placement of the step and its timeline."""
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
    """The part of the step time that each op and its transfers take on the critical chain: 0 off the chain, the step time in total."""
    waits, last = waiting(problem, device, timeline), int(timeline.end_ns.argmax())
    chain = waits.chain(last)
    start_ns = waits.start_ns[chain]
    waited = np.zeros(problem.num_ops, dtype=np.int64)
    np.add.at(waited, waits.op[chain], np.append(timeline.end_ns[last], start_ns[:-1]) - start_ns)
    return waited


def _behind_ops(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline, found: Arrivals) -> Int64[np.ndarray, " ops"]:
    """The node that ends as each op starts: an input (or the transfer that brings it) if there is one, else an op on the same device."""
    graph = problem.graph
    behind = ending(np.stack([device, timeline.end_ns]), np.stack([device, timeline.start_ns]))
    through = np.where(found.transfer == NONE, graph.edge_src, problem.num_ops + found.transfer)
    last = np.flatnonzero(found.time_ns == timeline.start_ns[graph.edge_dst])
    behind[graph.edge_dst[last]] = through[last]
    return behind


def _behind_transfers(problem: Problem, timeline: Timeline, source: Int64[np.ndarray, " transfers"]) -> Int64[np.ndarray, " transfers"]:
    """The sender where a transfer starts as it ends; else the transfer that ends on the channel at that time; else the sender."""
    start_ns, end_ns, cluster = timeline.transfer_start_ns, timeline.transfer_end_ns, problem.cluster
    channel = cluster.link_channel[cluster.link_index[timeline.transfer_src, timeline.transfer_dst]].astype(np.int64)
    before = ending(np.stack([channel, end_ns]), np.stack([channel, start_ns]))
    at_once = (timeline.end_ns[source] == start_ns) | (before == NONE)
    return np.where(at_once, source, problem.num_ops + before)
