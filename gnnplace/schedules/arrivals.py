"""The arrival time of every edge in a step, read off its timeline."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.compiled import kernel
from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.schedules.ranks import NOTHING, delays


class Arrivals(NamedTuple):
    """For each edge the time at which its tensor or control signal is on the consumer's device.

    `transfer` is the transfer that brings the tensor, `NONE` if there is none.
    """

    time_ns: Int64[np.ndarray, " edges"]
    transfer: Int64[np.ndarray, " edges"]


def arrivals(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Arrivals:
    """The arrivals of every edge; `device` and `timeline` are the placement of the step and its timeline."""
    time_ns, transfer = _arrivals(
        delays(problem), len(problem.graph.output_bytes), device, timeline.end_ns,
        timeline.transfer_output, timeline.transfer_dst, arrived_ns(problem, timeline),
    )  # fmt: skip
    return Arrivals(time_ns, transfer)


def arrived_ns(problem: Problem, timeline: Timeline) -> Int64[np.ndarray, " transfers"]:
    """The arrival of each transfer: the end of its last channel plus the latency of its link.

    The last channel is the receive channel if the link has one.
    """
    link = problem.cluster.link_index[timeline.transfer_src, timeline.transfer_dst]
    return np.maximum(timeline.transfer_end_ns, timeline.receive_end_ns) + problem.cluster.link_latency_ns[link]


@kernel
@no_type_check
def _arrivals(delays, outputs, device, end_ns, transfer_output, transfer_dst, arrived_ns):
    # the transfer that brings an output to a device; undefined if there is none
    brings = np.empty((outputs, delays.time_ns.shape[1]), np.int32)
    for transfer in range(len(transfer_output)):
        brings[transfer_output[transfer], transfer_dst[transfer]] = transfer
    time_ns, through = np.empty(len(delays.edges), np.int64), np.full(len(delays.edges), NONE, np.int64)
    for op in range(len(device)):
        here = device[op]
        for edge in range(delays.out_ptr[op], delays.out_ptr[op + 1]):
            output, there = delays.edges[edge].output, device[delays.edges[edge].dst]
            time_ns[edge] = end_ns[op]
            if there != here:
                if output == NOTHING:
                    time_ns[edge] += max(1, delays.link_latency_ns[delays.link_index[here, there]])
                else:
                    through[edge] = brings[output, there]
                    time_ns[edge] = arrived_ns[through[edge]]
    return time_ns, through
