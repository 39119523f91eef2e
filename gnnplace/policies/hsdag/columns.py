"""The columns of HSDAG's nodes, the co-location sets of the graph (Duan et al., NeurIPS 2024, section 2.3).

`paper`: the kinds of its ops, its degrees, its fractal dimension, an output shape and its position, side by side.
`code`: kinds and the bare position, as in the authors' public code, which has the rest but does not use it. What the
paper leaves open, decided here:

- *Kind*: the mean of the ops' one-hots; of the kinds of the training graphs, and one column for all others.
- *Degrees*: the paper has a column for each number of producers and of consumers that occurs; here there are `DEGREES`,
  the last one for all higher numbers. A column that no training graph has changes nothing there.
- *Shape*: of the first output of the set's last op, which leaves a chain; log(1 + size) of `DIMS` dimensions, 0
  where there are fewer.
- *Fractal dimension*: how fast the graph around a node grows. It is the slope of the least-squares line through log
  N(v, r) over log r, where N(v, r) nodes other than v are at most r edges away and r takes every distance that occurs:
  1 along a path, 2 in the middle of a grid, 0 where fewer than two distances occur. Edges are followed both ways, as
  the network does: along them most nodes are out of reach of each other.
- *Position*: the number of the set in topological order, as sines and cosines of `POSITIONS / 2` frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from torch import Tensor

from gnnplace.compiled import kernel
from gnnplace.graph import ComputationGraph
from gnnplace.policies.encoders.kinds import Vocabulary
from gnnplace.problems import Problem
from gnnplace.units.units import Units, unit_edges

FeatureSet = Literal["paper", "code"]
DEGREES, DIMS, POSITIONS, BASE = 16, 6, 16, 10_000
Edges = Int64[np.ndarray, "2 edges"]


class NodeColumns:
    """The paper's encoder: the columns as they are, without weights and without their neighbours."""

    def __init__(self, kinds: Vocabulary, features: FeatureSet) -> None:
        self.kinds, self.features, self.width = kinds, features, width(features, kinds)

    def constants(self, problem: Problem, units: Units) -> Float[Tensor, "nodes columns"]:
        sent = unit_edges(problem.graph, units)
        edges = np.stack([sent.src, sent.dst]).astype(np.int64)
        return torch.from_numpy(columns(problem.graph, units, edges, self.kinds, self.features))

    def widen_ranges(self, constants: Sequence[Tensor]) -> None:
        """Nothing: the kinds are those of the training graphs."""

    def __call__(self, constants: Float[Tensor, "nodes columns"]) -> Float[Tensor, "nodes columns"]:
        return constants


def width(features: FeatureSet, kinds: Vocabulary) -> int:
    """The number of columns."""
    return kinds.size + (1 if features == "code" else 2 * DEGREES + 1 + DIMS + POSITIONS)


def columns(
    graph: ComputationGraph, nodes: Units, edges: Edges, kinds: Vocabulary, features: FeatureSet
) -> Float32[np.ndarray, "nodes columns"]:
    """The columns of every node; `edges` are those between different nodes, which are numbered in topological order."""
    position = np.arange(nodes.num_units, dtype=np.float64)
    if features == "code":
        parts = [kind_shares(graph, nodes, kinds), position[:, None]]
    else:
        degrees = [degree_columns(nodes.num_units, end) for end in (edges[1], edges[0])]
        dimension = fractal_dimension(nodes.num_units, edges)[:, None]
        parts = [kind_shares(graph, nodes, kinds), *degrees, dimension, shapes(graph, nodes), waves(position)]
    return np.concatenate(parts, axis=1).astype(np.float32)


def kind_shares(graph: ComputationGraph, nodes: Units, kinds: Vocabulary) -> Float[np.ndarray, "nodes kinds"]:
    """The share of each kind among a node's ops."""
    counts = np.zeros((nodes.num_units, kinds.size))
    np.add.at(counts, (nodes.unit, kinds.rows(graph)), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def degree_columns(nodes: int, end: Int64[np.ndarray, " edges"]) -> Float[np.ndarray, "nodes degrees"]:
    """One-hot of the number of distinct edges with each node at this end."""
    return np.eye(DEGREES)[np.minimum(np.bincount(end, minlength=nodes), DEGREES - 1)]


def shapes(graph: ComputationGraph, nodes: Units) -> Float[np.ndarray, "nodes dims"]:
    """The logarithms of 1 + the dimensions of the first output of each node's last op."""
    last = np.empty(nodes.num_units, np.int64)
    last[nodes.unit[graph.order]] = graph.order  # the last one that is written stays
    table = np.zeros((nodes.num_units, DIMS))
    for node, op in enumerate(last.tolist()):
        shape = graph.shape(int(graph.output_ptr[op])) if graph.output_ptr[op] < graph.output_ptr[op + 1] else None
        table[node, : len(shape or ())] = np.log1p((shape or ())[:DIMS])
    return table


def waves(position: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, "nodes positions"]:
    """Sines and cosines of a position, of frequencies from 1 down to about 1 / `BASE` (Vaswani et al. 2017)."""
    angle = position[:, None] / BASE ** (np.arange(0, POSITIONS, 2) / POSITIONS)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def fractal_dimension(nodes: int, edges: Int64[np.ndarray, "2 edges"]) -> Float64[np.ndarray, " nodes"]:
    """The fractal dimension of every node of a graph of these edges."""
    ends = np.concatenate([edges, edges[::-1]], axis=1)
    order = np.argsort(ends[0], kind="stable")
    first = np.searchsorted(ends[0][order], np.arange(nodes + 1))
    return _dimensions(first, np.ascontiguousarray(ends[1][order]))


@kernel
@no_type_check
def _dimensions(first, neighbour):
    """The neighbours of node v are `neighbour[first[v]:first[v + 1]]`; one breadth-first search from every node."""
    nodes = len(first) - 1
    dimension, seen, queue = np.zeros(nodes), np.full(nodes, -1), np.empty(nodes, np.int64)
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
            dimension[source] = (count * sum_xy - sum_x * sum_y) / (count * sum_xx - sum_x * sum_x)
    return dimension
