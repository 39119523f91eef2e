"""The tail of every op in a step: the longest path behind it, by the transfers and the device order of a timeline."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int32

from gnnplace.compiled import kernel
from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.schedules.arrivals import Arrivals, arrivals
from gnnplace.schedules.ranks import delays


def tail_ns(
    problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline, edge_arrivals: Arrivals | None = None
) -> Float[np.ndarray, " ops"]:
    """The time in ns from the end of each op to the end of the step if nothing waits any longer.

    `device`, `timeline` and `edge_arrivals` are the placement of the step, its timeline and its arrivals.
    """
    edge_arrivals = arrivals(problem, device, timeline) if edge_arrivals is None else edge_arrivals
    order = np.argsort(timeline.start_ns, kind="stable")  # other sorts order ties by the machine
    start_ns, end_ns = timeline.start_ns.astype(np.float64), timeline.end_ns.astype(np.float64)
    tails: Float[np.ndarray, " ops"] = _tails(delays(problem), device, order, start_ns, end_ns, edge_arrivals.time_ns)
    return tails


@kernel
@no_type_check
def _tails(delays, device, order, start_ns, end_ns, arrive_ns):
    """The longest path from the end of each op to the end of the step, over edges and over the device's next op.

    An edge takes the time that it took in the timeline.
    """
    tail_ns, following = np.zeros(len(order)), np.full(delays.time_ns.shape[1], NONE)
    for place in range(len(order) - 1, -1, -1):
        op = order[place]
        longest = 0.0
        for edge in range(delays.out_ptr[op], delays.out_ptr[op + 1]):
            reader = delays.edges[edge].dst
            longest = max(longest, arrive_ns[edge] - end_ns[op] + end_ns[reader] - start_ns[reader] + tail_ns[reader])
        after = following[device[op]]
        if after != NONE and start_ns[after] >= end_ns[op]:
            longest = max(longest, end_ns[after] - start_ns[after] + tail_ns[after])
        tail_ns[op] = longest
        following[device[op]] = op
    return tail_ns
