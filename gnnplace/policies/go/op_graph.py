"""The graph of single ops in topological order, embedded by GraphSAGE (Zhou et al., NeurIPS 2020, eqs. 3 and 4).

What the paper leaves open: neighbours are the producers and the consumers of an op alike, control edges included, and
none are sampled. Embeddings are kept apart: maxima of sigmoids are alike, and without that all ops would move at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch_geometric.utils import scatter

from gnnplace.graph import ComputationGraph
from gnnplace.policies.encoders.columns import Columns, TrainedRange, apart
from gnnplace.policies.encoders.paper import standardised
from gnnplace.policies.glorot import glorot
from gnnplace.problems import Problem
from gnnplace.units.units import Units, unit_edges


class OpGraphConstants(NamedTuple):
    """The columns of every op, with the standardised number of its inputs last; and the edges, in both directions.

    Ops are in topological order.
    """

    ops: Float[Tensor, "ops columns"]
    edges: Int64[Tensor, "2 edges"]


class OpGraph(nn.Module):
    """Embeddings of `width` for each op, in topological order, after `rounds` rounds of GraphSAGE.

    Columns are clamped to their range in training.
    """

    def __init__(self, columns: Columns, *, width: int, rounds: int) -> None:
        super().__init__()
        self.columns, self.width, self.own_width = columns, width, columns.width + 1
        self.range = TrainedRange(columns.width + 1)
        self.sage = MaxPoolSage(columns.width + 1, width=width, rounds=rounds)

    def constants(self, problem: Problem, units: Units) -> OpGraphConstants:
        edges = unit_edges(problem.graph, units)
        inputs = standardised(np.bincount(edges.dst, minlength=units.num_units)[:, None].astype(np.float64))
        along = torch.from_numpy(np.stack([edges.src, edges.dst]).astype(np.int64))
        return OpGraphConstants(
            torch.cat([self.columns.ops(problem, units), torch.from_numpy(inputs)], dim=1),
            torch.cat([along, along.flip(0)], dim=1),
        )

    def widen_ranges(self, constants: Sequence[OpGraphConstants]) -> None:
        for graph in constants:
            self.range.widen(graph.ops)

    def forward(self, constants: OpGraphConstants) -> Float[Tensor, "ops width"]:
        return apart(self.sage(self.own(constants), constants.edges))

    def own(self, constants: OpGraphConstants) -> Float[Tensor, "ops own_width"]:
        return self.range(constants.ops)


def single_ops(graph: ComputationGraph) -> Units:
    """Units of one op each, without colocation: the policy reads them, and places other units."""
    number = np.empty(graph.num_ops, np.int32)
    number[graph.order] = np.arange(graph.num_ops, dtype=np.int32)
    return Units("ops", number, graph.num_ops)


class MaxPoolSage(nn.Module):
    """GraphSAGE with max pooling (Hamilton et al., NeurIPS 2017), for `rounds` rounds.

    A round is `h_N(v) = max over neighbours u of sigmoid(W h_u + b)`, then `h_v <- relu(F [h_v, h_N(v)])`. A node
    without neighbours has `h_N(v) = 0`, below every sigmoid. Messages go along the given edges, from source to
    destination.
    """

    def __init__(self, features: int, *, width: int, rounds: int) -> None:
        super().__init__()
        before = [features, *[width] * (rounds - 1)]
        self.pool = nn.ModuleList(nn.Linear(size, width) for size in before)
        self.join = nn.ModuleList(nn.Linear(size + width, width) for size in before)
        glorot(self)

    def forward(
        self, nodes: Float[Tensor, "nodes features"], edges: Int64[Tensor, "2 edges"]
    ) -> Float[Tensor, "nodes width"]:
        for pool, join in zip(self.pool, self.join, strict=True):
            near = largest_of_neighbours(torch.sigmoid(pool(nodes)), edges)
            nodes = torch.relu(join(torch.cat([nodes, near], dim=-1)))
        return nodes


def largest_of_neighbours(
    nodes: Float[Tensor, "nodes width"], edges: Int64[Tensor, "2 edges"]
) -> Float[Tensor, "nodes width"]:
    """The elementwise maximum over the sources of each node's edges; 0 where it has none."""
    source, destination = edges
    return scatter(nodes[source], destination, dim=0, dim_size=len(nodes), reduce="max")
