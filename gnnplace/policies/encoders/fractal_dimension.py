"""The fractal dimension of a node: how fast the graph around it grows (Duan et al., NeurIPS 2024, section 2.3).

D(v) is the slope of the least-squares line through log N(v, r) over log r, where N(v, r) nodes other than v are at most r edges away and r
takes every distance that occurs: 1 along a path, 2 in the middle of a grid, 0 where fewer than two distances occur. Decided here: edges are
followed both ways, as the network does, since along them most nodes of a graph are out of reach of each other; v itself does not count, so
that a path has dimension 1 exactly.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float64, Int64

from gnnplace.compiled import kernel


def fractal_dimension(nodes: int, edges: Int64[np.ndarray, "2 edges"]) -> Float64[np.ndarray, " nodes"]:
    """D of every node of a graph of these edges."""
    ends = np.concatenate([edges, edges[::-1]], axis=1)
    order = np.argsort(ends[0], kind="stable")
    first = np.searchsorted(ends[0][order], np.arange(nodes + 1))
    return _dimensions(first, np.ascontiguousarray(ends[1][order]))


@kernel
@no_type_check
def _dimensions(first, neighbour):
    """The neighbours of node v are `neighbour[first[v]:first[v + 1]]`; one breadth-first search from every node."""
    nodes = len(first) - 1
    found, seen, queue = np.zeros(nodes), np.full(nodes, -1), np.empty(nodes, np.int64)
    for source in range(nodes):
        queue[0], seen[source] = source, source
        done, reached, radius = 0, 1, 0
        count, sum_x, sum_y, sum_xx, sum_xy = 0, 0.0, 0.0, 0.0, 0.0
        while done < reached:
            ring, radius = reached, radius + 1
            while done < ring:
                for at in range(first[queue[done]], first[queue[done] + 1]):
                    node = neighbour[at]
                    if seen[node] != source:
                        seen[node], queue[reached] = source, node
                        reached += 1
                done += 1
            if reached > ring:
                x, y = np.log(radius), np.log(reached - 1)
                count, sum_x, sum_y, sum_xx, sum_xy = count + 1, sum_x + x, sum_y + y, sum_xx + x * x, sum_xy + x * y
        if count > 1:
            found[source] = (count * sum_xy - sum_x * sum_y) / (count * sum_xx - sum_x * sum_x)
    return found
