"""The index that a breadth-first traversal gives every op: from the ops without inputs, along edges, ties by op index."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Int64

from gnnplace.compiled import kernel
from gnnplace.graph import ComputationGraph


def breadth_first_index(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """When each op is first met, `0..ops-1`; control edges count. A graph is acyclic, so every op is met."""
    return _index(np.diff(graph.in_ptr), graph.out_ptr, graph.edge_dst)


@kernel
@no_type_check
def _index(num_inputs, out_ptr, edge_dst):
    num_ops = len(num_inputs)
    index = np.full(num_ops, -1, np.int64)
    queue = np.empty(num_ops, np.int64)
    met = 0
    for op in range(num_ops):
        if num_inputs[op] == 0:
            index[op] = met
            queue[met] = op
            met += 1
    head = 0
    while head < met:
        op = queue[head]
        head += 1
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            dst = edge_dst[edge]
            if index[dst] == -1:
                index[dst] = met
                queue[met] = dst
                met += 1
    return index
