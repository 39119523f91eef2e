"""The split bound: the ops of a connected component are all on one device, or some edge crosses devices.

On one device, the step takes at least the work of the component there, and the memory must hold it. If an edge crosses devices, the step
takes at least the head of its source, the source, the transfer, the destination and its tail, at the best edge and devices. The bound is
strong for a component that fits no memory, and weak for a large one, which mostly has an edge with slack.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.bounds.paths import Ends
from gnnplace.bounds.relaxed import NEVER, Relaxed
from gnnplace.units.variables import join


def split_ns(relaxed: Relaxed, found: Ends) -> int:
    """The largest, over components, of the smaller of both cases, in ns; `NEVER` where neither case is possible."""
    graph, count = relaxed.graph, relaxed.graph.num_ops
    label = join(relaxed.units.unit.astype(np.int64), graph.edge_src, graph.edge_dst)
    cut = np.full(count, NEVER, dtype=np.int64)
    np.minimum.at(cut, label[graph.edge_src], _cut_ns(relaxed, found))
    whole = _whole_ns(relaxed, label, count).min(axis=1)
    return int(np.minimum(cut, whole).max())


def _cut_ns(relaxed: Relaxed, found: Ends) -> Int64[np.ndarray, " edges"]:
    """The least step time if the edge crosses devices."""
    src, dst = relaxed.graph.edge_src, relaxed.graph.edge_dst
    best = np.full(relaxed.graph.num_edges, NEVER, dtype=np.int64)
    for a in range(relaxed.num_classes):
        before = np.minimum(found.head_ns[src, a] + relaxed.time_ns[src, a], NEVER)
        for b in range(relaxed.num_classes):
            after = np.minimum(found.tail_ns[dst, b] + relaxed.time_ns[dst, b], NEVER)
            best = np.minimum(best, before + relaxed.delay_ns[:, a, b] + after)
    return best


def _whole_ns(relaxed: Relaxed, label: Int64[np.ndarray, " ops"], count: int) -> Int64[np.ndarray, "components classes"]:
    """The time of a whole component on one device of a class; `NEVER` where it is not allowed or does not fit."""
    work, held, forbidden = (np.zeros((count, relaxed.num_classes), dtype=np.int64) for _ in range(3))
    np.add.at(work, label, np.where(relaxed.time_ns < NEVER, relaxed.time_ns, 0))
    np.add.at(held, label, relaxed.held_bytes[:, None])
    np.add.at(forbidden, label, relaxed.time_ns >= NEVER)
    possible = (forbidden == 0) & (held <= relaxed.memory_bytes)
    return np.where(possible, -(-work // relaxed.streams), NEVER)
