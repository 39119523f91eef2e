"""Moments of ops: values that no op has before one that it depends on, and the order that they make."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.compiled import kernel
from gnnplace.graph import ComputationGraph


def raised(
    graph: ComputationGraph,
    value: Int64[np.ndarray, " ops"],
    by: int = 0,
    which: Bool[np.ndarray, " ops"] | None = None,
    backwards: bool = False,
) -> Int64[np.ndarray, " ops"]:
    """The values after each op has at least that of each op that it depends on, and `by` more.

    Only ops of `which` are raised, if it is given. `backwards`, each has that of the ops that depend on it.
    """
    which, raised = np.ones(len(value), dtype=bool) if which is None else which, value.copy()
    if backwards:
        _raise(graph.order[::-1].copy(), graph.out_ptr, np.arange(graph.num_edges), graph.edge_dst, which, by, raised)
    else:
        _raise(graph.order, graph.in_ptr, graph.in_edges, graph.edge_src, which, by, raised)
    return raised


def reached(graph: ComputationGraph, begin: Bool[np.ndarray, " ops"]) -> Bool[np.ndarray, " ops"]:
    """True for the ops of `begin` and all that depend on them."""
    return raised(graph, begin.astype(np.int64)) > 0


def by_moment(moment: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Priorities under which an op of an earlier moment goes first; a tie has the order of the graph."""
    priority = np.empty(len(moment), dtype=np.int64)
    priority[np.argsort(moment, kind="stable")] = -np.arange(len(moment))
    return priority


@kernel
@no_type_check
def _raise(order, ptr, edges, end, which, by, value):
    for op in order:
        if which[op]:
            for place in range(ptr[op], ptr[op + 1]):
                value[op] = max(value[op], value[end[edges[place]]] + by)
