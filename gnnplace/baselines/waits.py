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
from gnnplace.transforms.arrivals import arrivals, ending


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
    graph, start = problem.graph, timeline.start_ns
    found = arrivals(problem, device, timeline)
    order = np.lexsort((found.time_ns, graph.edge_dst))
    dst = graph.edge_dst[order]
    last = order[np.flatnonzero(np.append(dst[1:] != dst[:-1], True))] if len(order) else order  # of each op with inputs, the last one
    behind, ready_ns = np.full(problem.num_ops, NONE, dtype=np.int64), np.zeros(problem.num_ops, dtype=np.int64)
    behind[graph.edge_dst[last]], ready_ns[graph.edge_dst[last]] = graph.edge_src[last], found.time_ns[last]
    queued = np.zeros(problem.num_ops, dtype=bool)
    brought = last[found.transfer[last] != NONE]
    queued[graph.edge_dst[brought]] = _late(timeline, found.transfer[brought], timeline.end_ns[graph.edge_src[brought]])
    before = ending(np.stack([device, timeline.end_ns]), np.stack([device, start]))
    blocked = (start > ready_ns) & (before != NONE)
    return Waiting(np.where(blocked, before, behind), ready_ns, queued | blocked)


def _late(timeline: Timeline, transfer: Int64[np.ndarray, " edges"], sent_ns: Int64[np.ndarray, " edges"]) -> Bool[np.ndarray, " edges"]:
    """Whether transfers had to wait for a channel."""
    received = timeline.receive_start_ns[transfer] > timeline.transfer_end_ns[transfer]
    return (timeline.transfer_start_ns[transfer] > sent_ns) | received
