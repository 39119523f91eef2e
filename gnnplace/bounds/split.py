"""Split: ops that edges connect stand all on one device, or an edge leads from one device to another.

On one device of a class they take their work there, and it must hold them; between two, the step lasts at least what comes
before the edge, its source, its transfer, its destination and what comes after, at the best edge and devices. So a component
that no memory holds is cut somewhere. The larger the component, the weaker: somewhere there is an edge with time to spare.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gnnplace.bounds.paths import Ends
from gnnplace.bounds.relaxed import NEVER, Relaxed


def split_ns(made: Relaxed, found: Ends) -> int:
    """The longest, over components, of the shorter of both ways, in ns; `NEVER` where a component can stand in neither."""
    graph, ops = made.graph, made.graph.num_ops
    pairs = (np.concatenate([graph.edge_src, made.units.unit + ops]), np.concatenate([graph.edge_dst, np.arange(ops)]))
    joined = coo_array((np.ones(len(pairs[0]), dtype=np.int8), pairs), shape=(ops + made.units.num_units,) * 2)
    count, label = connected_components(joined, directed=False)
    cut = np.full(count, NEVER, dtype=np.int64)
    np.minimum.at(cut, label[graph.edge_src], _cut_ns(made, found))
    whole = _whole_ns(made, label[:ops], count).min(axis=1)
    return int(np.minimum(cut, whole).max())


def _cut_ns(made: Relaxed, found: Ends) -> Int64[np.ndarray, " edges"]:
    """The least step in which an edge leads from one device to another."""
    src, dst = made.graph.edge_src, made.graph.edge_dst
    best = np.full(made.graph.num_edges, NEVER, dtype=np.int64)
    for a in range(made.num_classes):
        before = np.minimum(found.head_ns[src, a] + made.time_ns[src, a], NEVER)
        for b in range(made.num_classes):
            after = np.minimum(found.tail_ns[dst, b] + made.time_ns[dst, b], NEVER)
            best = np.minimum(best, before + made.delay_ns[:, a, b] + after)
    return best


def _whole_ns(made: Relaxed, label: Int32[np.ndarray, " ops"], count: int) -> Int64[np.ndarray, "components classes"]:
    """The work of a component on one device of a class; `NEVER` where it is forbidden or does not fit."""
    work, held, forbidden = (np.zeros((count, made.num_classes), dtype=np.int64) for _ in range(3))
    np.add.at(work, label, np.where(made.time_ns < NEVER, made.time_ns, 0))
    np.add.at(held, label, made.held_bytes[:, None])
    np.add.at(forbidden, label, made.time_ns >= NEVER)
    possible = (forbidden == 0) & (held <= made.memory_bytes)
    return np.where(possible, -(-work // made.streams), NEVER)
