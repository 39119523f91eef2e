"""Sparse gradients: indices and rows of all micro-batches are concatenated and applied in one update.

Such an update reads integers (indices) of the micro-batches. What it makes of their rows grows with their number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.transformations.repetition import rows, variables


class SparseUpdates(NamedTuple):
    """`by_rows[i]` is True for an op that runs once on the rows of all micro-batches, `grown[k]` for its outputs."""

    by_rows: Bool[np.ndarray, " ops"]
    grown: Bool[np.ndarray, " outputs"]


def sparse_updates(graph: ComputationGraph, once: Bool[np.ndarray, " ops"]) -> SparseUpdates:
    """The ops that work on rows of all micro-batches; `once[i]` tells whether op i runs once a step."""
    by_rows, grown = np.zeros(graph.num_ops, dtype=bool), np.zeros(len(graph.output_bytes), dtype=bool)
    whole = np.array([_is_whole(value) for value in graph.output_dtype.values] + [False], dtype=bool)
    indices = whole[graph.output_dtype.index] & rows(graph) & ~once[graph.output_op]
    if not (once[graph.edge_dst] & np.append(indices, False)[graph.edge_data]).any():
        return SparseUpdates(by_rows, grown)
    leading, state = _leading(graph), variables(graph)[graph.output_op[graph.output_root]]
    for op in graph.order[once[graph.order]].tolist():
        inputs = graph.edge_data[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]
        of_rows = inputs[(inputs != NONE) & (indices | grown)[inputs]]
        if len(of_rows):
            by_rows[op] = True
            outputs = np.arange(graph.output_ptr[op], graph.output_ptr[op + 1])
            like = np.isin(leading[outputs], leading[of_rows]) & (leading[outputs] != NONE)
            grown[outputs[like & ~state[outputs]]] = True
    return SparseUpdates(by_rows, grown)


def _leading(graph: ComputationGraph) -> Int64[np.ndarray, " outputs"]:
    """The first dimension of each output, `NONE` for a scalar and where the shape is unknown."""
    rank = np.maximum(graph.output_rank, 0)
    first = np.cumsum(rank) - rank
    return np.where(rank > 0, np.append(graph.output_dims, NONE)[np.minimum(first, len(graph.output_dims))], NONE)


def _is_whole(dtype: str) -> bool:
    return dtype.startswith(("int", "uint", "bool"))
