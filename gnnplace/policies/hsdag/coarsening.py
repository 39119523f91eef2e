"""The co-location sets of HSDAG (Duan et al., NeurIPS 2024, appendix G): ops that are placed together because nothing
parts them.

`paper` joins an op and its only consumer where it is the only producer of that one, so that sets are chains. `code` is
what the authors' public code does: each op with one producer joins it, even where that one has other consumers, so that
sets are trees. Where A feeds B and C these are one set by `code` and three by `paper`. Either leaves an acyclic graph
acyclic: a path that leaves a set can come back into it at its first op alone, which would have been a cycle before.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gnnplace.problems import Problem
from gnnplace.units.units import Units, allowed, numbered, unit_edges

Coarsening = Literal["paper", "code"]
Edges = Int64[np.ndarray, "2 edges"]


def co_located(problem: Problem, of_ops: Units, rule: Coarsening) -> Units:
    """The units joined to co-location sets. Those that may stand on different devices stay apart."""
    sent, legal = unit_edges(problem.graph, of_ops), allowed(problem, of_ops)
    edges = np.stack([sent.src, sent.dst]).astype(np.int64)
    joined = joins(of_ops.num_units, edges, rule) & (legal[edges[0]] == legal[edges[1]]).all(axis=1)
    return numbered(problem.graph, of_ops.name, pieces(of_ops.num_units, edges[:, joined])[of_ops.unit])


def joins(nodes: int, edges: Edges, rule: Coarsening) -> Bool[np.ndarray, " edges"]:
    """Which of the distinct edges join their ends to one set."""
    only_producer = np.bincount(edges[1], minlength=nodes)[edges[1]] == 1
    only_consumer = np.bincount(edges[0], minlength=nodes)[edges[0]] == 1
    return only_producer & only_consumer if rule == "paper" else only_producer


def pieces(nodes: int, edges: Edges) -> Int64[np.ndarray, " nodes"]:
    """The connected piece of each node, whatever the direction of edges; pieces are numbered by their first nodes."""
    table = coo_array((np.ones(edges.shape[1], np.int8), (edges[0], edges[1])), shape=(nodes, nodes))
    _, label = connected_components(table, directed=False)
    _, first, index = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[index]
