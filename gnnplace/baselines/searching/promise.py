"""What a placement promises before it is simulated: how much it
overflows at least, and how long its step takes at least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.cluster import NO_LINK
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.problems import MAX_STEP_NS, Problem


class Promise(NamedTuple):
    """What every step of a placement has at least; the least promises most.

    `excess_bytes` is of what ops hold throughout.
    """

    excess_bytes: int
    step_time_ns: int


def promise(problem: Problem, placement: Placement) -> Promise:
    """No device or channel is busy for longer than the step takes, none of their work overlaps but on the streams of a
    device.

    Where a link is missing there is no step: `MAX_STEP_NS`. Fused ops may take less than one by one, so such a
    placement may take no time.
    """
    ops, device, cluster = np.arange(problem.num_ops), placement.device, problem.cluster
    held = _total(device, problem.graph.persistent_bytes, problem.num_devices)
    excess = int(np.maximum(0, held - cluster.memory_bytes).sum())
    if placement.fusion is not None:
        return Promise(excess, 0)
    busy_ns = -(-_total(device, problem.time_ns[ops, device], problem.num_devices) // cluster.streams)
    return Promise(excess, max(int(busy_ns.max()), _sent_ns(problem, device)))


def _sent_ns(problem: Problem, device: Int32[np.ndarray, " ops"]) -> int:
    """For how long the busiest channel carries transfers: each output is sent once to each device that reads it."""
    graph, cluster = problem.graph, problem.cluster
    src, dst = device[graph.edge_src], device[graph.edge_dst]
    sent = np.flatnonzero((src != dst) & (graph.edge_data != NONE))
    sent = sent[
        np.unique(graph.edge_data[sent].astype(np.int64) * problem.num_devices + dst[sent], return_index=True)[1]
    ]
    link = cluster.link_index[src[sent], dst[sent]]
    if (link == NO_LINK).any():
        return MAX_STEP_NS
    lasts_ns = problem.transfer_ns[graph.edge_data[sent], problem.link_rate[link]]
    return int(_total(cluster.link_channel[link], lasts_ns, len(cluster.links)).max(initial=0))


def _total(
    of: Int32[np.ndarray, " rows"], value: Int64[np.ndarray, " rows"], count: int
) -> Int64[np.ndarray, " count"]:
    """The sum of values by number."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, of, value)
    return total
