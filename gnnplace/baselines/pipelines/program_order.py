"""A row of ops in the order of the program, in which the forward pass never goes back and the backward pass never on.

The forward ops of one micro-batch stand in the order of the document, each by itself; every other op stands beside one.
A gradient stands where the gradients that it reads were computed, but not behind the last op of its layer. Weights,
sums and updates stand beside the first forward op that reads the weight. So every cut of the row gives stages of which
each reads from earlier ones alone, as GPipe and `torch.export` cut a program.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.layers import spread, with_families
from gnnplace.compiled import kernel
from gnnplace.graph import NONE, ComputationGraph

MOST_PLACES = 256


def program_order(
    graph: ComputationGraph, number: Int64[np.ndarray, " ops"], repeated: Bool[np.ndarray, " ops"]
) -> Int64[np.ndarray, " ops"]:
    """The place of each op of one micro-batch, by its pass (0 forward, 1 and 2 gradients) and what is repeated."""
    forward = repeated & (number == 0) & (np.diff(graph.in_ptr) > 0)
    order = np.arange(graph.num_ops)
    if not (graph.edge_src < graph.edge_dst).all():
        order = graph.order.astype(np.int64)
    place = np.full(graph.num_ops, NONE, dtype=np.int64)
    row = order[forward[order]]
    place[row] = np.arange(len(row))
    layer, layers = graph.layer.index.astype(np.int64), len(graph.layer.values)
    last = np.full(layers + 1, NONE)  # of each layer; the last entry is for ops without one
    named = row[layer[row] != NONE]
    np.maximum.at(last, layer[named], place[named])
    backward = repeated & (number > 0)
    _stand(graph.order, graph.in_ptr, graph.in_edges, graph.edge_src, backward, last[layer], place)
    together = with_families(graph, spread(graph, place))
    return together - together.min()


def one_way(
    graph: ComputationGraph,
    place: Int64[np.ndarray, " ops"],
    number: Int64[np.ndarray, " ops"],
    repeated: Bool[np.ndarray, " ops"],
) -> Int64[np.ndarray, " ops"]:
    """The places after those join between which a forward pass would go back, or a backward pass on.

    Colocation groups and layers whose modules run in turns make such ways. Inputs are no part of a pass.
    """
    computed = repeated & (np.diff(graph.in_ptr) > 0)
    edge = np.flatnonzero(computed[graph.edge_src] & computed[graph.edge_dst])
    back = number[graph.edge_src[edge]] > 0
    within = back == (number[graph.edge_dst[edge]] > 0)
    src, dst = place[graph.edge_src[edge]], place[graph.edge_dst[edge]]
    low, high = np.where(back, src, dst)[within], np.where(back, dst, src)[within]
    change = np.zeros(int(place.max()) + 2, dtype=np.int64)
    np.add.at(change, low[low < high] + 1, 1)
    np.subtract.at(change, high[low < high] + 1, 1)
    parted = np.cumsum(change)[:-1] == 0
    joined = np.cumsum(parted)[place]
    return joined - joined.min()


@kernel
@no_type_check
def _stand(order, in_ptr, in_edges, edge_src, backward, last, place):
    """Places the gradients, in place; `last[i]` is the last forward op of op i's layer, or -1."""
    for op in order:
        if backward[op]:
            place[op] = last[op]
            for position in range(in_ptr[op], in_ptr[op + 1]):
                source = edge_src[in_edges[position]]
                if backward[source] and place[source] != -1 and (place[op] == -1 or place[source] < place[op]):
                    place[op] = place[source]


def coarser(
    place: Int64[np.ndarray, " ops"],
    work_ns: Float[np.ndarray, " ops"],
    crosses: Float[np.ndarray, " cuts"],
    most: int = MOST_PLACES,
) -> Int64[np.ndarray, " ops"]:
    """The places after those of about equal work join, so that at most `most` are left, parted where least crosses.

    >>> coarser(np.arange(4), np.ones(4), np.array([0.0, 9.0, 1.0, 9.0, 0.0]), 2).tolist()
    [0, 0, 1, 1]
    """
    length = len(crosses) - 1
    if length <= most:
        return place
    before = np.cumsum(np.bincount(place, weights=work_ns, minlength=length))
    part = np.minimum((before[:-1] / before[-1] * (most - 1)).astype(np.int64), most - 2)  # of each cut inside
    best = np.lexsort((crosses[1:-1], part))
    cuts = 1 + best[np.unique(part[best], return_index=True)[1]]
    starts = np.zeros(length, dtype=np.int64)
    starts[cuts] = 1
    return np.cumsum(starts)[place]
