"""What every op of a simulated step waited for: its device, or an input that came last.

Who follows that from the op that ends last goes along the critical chain of the step (the critical path of a schedule, machines included).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.graph import NONE
from gnnplace.problem import Problem
from gnnplace.result import Timeline


class Waiting(NamedTuple):
    """`behind[i]` is the op whose end, or whose output's arrival, let op i start, -1 where nothing did.

    `ready_ns[i]` is when its last input had arrived. `queued` says that it was a device or a channel that i waited for, where another
    order may help.
    """

    behind: Int64[np.ndarray, " ops"]
    ready_ns: Int64[np.ndarray, " ops"]
    queued: Bool[np.ndarray, " ops"]

    def chain(self, op: int) -> Int64[np.ndarray, " chain"]:
        """The ops that an op waited for, one after the other, from the last to the first; itself first."""
        found = [op]
        while (op := int(self.behind[op])) != NONE:
            found.append(op)
        return np.array(found, dtype=np.int64)


def waiting(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Waiting:
    """What ops waited for in a step of these devices."""
    graph, start, end = problem.graph, timeline.start_ns, timeline.end_ns
    arrival, late = _arrivals(problem, device, timeline)
    order = np.lexsort((arrival, graph.edge_dst))
    dst = graph.edge_dst[order]
    last = order[np.flatnonzero(np.append(dst[1:] != dst[:-1], True))] if len(order) else order  # of each op with inputs, the last one
    behind, ready_ns = np.full(problem.num_ops, NONE, dtype=np.int64), np.zeros(problem.num_ops, dtype=np.int64)
    behind[graph.edge_dst[last]], ready_ns[graph.edge_dst[last]] = graph.edge_src[last], arrival[last]
    queued = np.zeros(problem.num_ops, dtype=bool)
    queued[graph.edge_dst[last]] = late[last]
    before = _before(device, start, end)
    blocked = (start > ready_ns) & (before != NONE)
    return Waiting(np.where(blocked, before, behind), ready_ns, queued | blocked)


def _arrivals(
    problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline
) -> tuple[Int64[np.ndarray, " edges"], Bool[np.ndarray, " edges"]]:
    """When what each edge carries is on its consumer's device, and whether it had to wait for a channel."""
    graph, cluster = problem.graph, problem.cluster
    here, there = device[graph.edge_src], device[graph.edge_dst]
    arrival, late = timeline.end_ns[graph.edge_src].copy(), np.zeros(graph.num_edges, dtype=bool)
    crosses, latency = here != there, np.zeros(graph.num_edges, dtype=np.int64)
    latency[crosses] = cluster.link_latency_ns[cluster.link_index[here[crosses], there[crosses]]]
    control = crosses & (graph.edge_data == NONE)
    arrival[control] += np.maximum(1, latency[control])
    data = np.flatnonzero(crosses & (graph.edge_data != NONE))
    if len(data):
        sent = np.argsort(timeline.transfer_output * problem.num_devices + timeline.transfer_dst)
        keys = (timeline.transfer_output * problem.num_devices + timeline.transfer_dst)[sent]
        row = sent[np.searchsorted(keys, graph.edge_data[data] * problem.num_devices + there[data])]
        received = timeline.receive_end_ns[row]
        late[data] = timeline.transfer_start_ns[row] > arrival[data]
        late[data] |= (received >= 0) & (timeline.receive_start_ns[row] > timeline.transfer_end_ns[row])
        arrival[data] = np.maximum(timeline.transfer_end_ns[row], received) + latency[data]
    return arrival, late


def _before(
    device: Int32[np.ndarray, " ops"], start: Int64[np.ndarray, " ops"], end: Int64[np.ndarray, " ops"]
) -> Int64[np.ndarray, " ops"]:
    """An op on the same device that ended when each started, the lowest of them; -1 where there is none."""
    order = np.lexsort((end, device))
    ends = np.stack([device[order].astype(np.int64), end[order]], axis=1)
    times, number = np.unique(np.concatenate([ends[:, 1], start]), return_inverse=True)
    keys = ends[:, 0] * len(times) + number[: len(order)]
    wanted = device.astype(np.int64) * len(times) + number[len(order) :]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, order[at], NONE)
