"""The GNN encoder: message passing over the graph of units.

Messages run along the edges and against them, and carry the features of the edges. The two directions have separate
weights (GINE convolutions of PyG). What is heard is the mean over neighbours, or several aggregates of them, since a
mean does not tell one neighbour from ten (Corso et al., NeurIPS 2020). Every unit also reads the mean of all units.
Without rounds of messages each unit is encoded from its own features alone: the ablation.

Features are clamped to their range in training (`columns.TrainedRange`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, MultiAggregation

from gnnplace.policies.encoders.columns import Columns, TrainedRange, apart, mean_by_graph
from gnnplace.policies.features import EDGE_FEATURES, GraphFeatures, edges_with_features
from gnnplace.problems import Problem
from gnnplace.units.units import Units

Aggregate = Literal["mean", "several"]
SEVERAL = ("mean", "sum", "max", "std")


class GNNEncoder(nn.Module):
    """Embeddings `Float["nodes width"]` of a graph's nodes after `rounds` rounds of messages; 0 rounds: no messages."""

    def __init__(
        self, node_features: int, edge_features: int, *, width: int = 64, rounds: int = 3, aggregate: Aggregate = "mean"
    ) -> None:
        super().__init__()
        self.node_range, self.edge_range = TrainedRange(node_features), TrainedRange(edge_features)
        self.embed = nn.Sequential(nn.Linear(node_features, width), nn.ReLU(), nn.Linear(width, width))
        self.forward_convs = nn.ModuleList(_conv(width, edge_features, aggregate) for _ in range(rounds))
        self.backward_convs = nn.ModuleList(_conv(width, edge_features, aggregate) for _ in range(rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.LayerNorm(width))

    def widen_ranges(self, graphs: Sequence[GraphFeatures]) -> None:
        """Widens the ranges of node and edge features to those of these graphs."""
        for graph in graphs:
            self.node_range.widen(graph.node)
            self.edge_range.widen(graph.edge)

    def forward(
        self,
        node: Float[Tensor, "nodes node_features"],
        edges: Int64[Tensor, "2 edges"],
        edge: Float[Tensor, "edges edge_features"],
        graph: Int64[Tensor, " nodes"] | None = None,
    ) -> Float[Tensor, "nodes width"]:
        """`graph` is the number of each node's graph, `0..graphs-1`, each with a node at least; None: one graph."""
        hidden, edge = self.embed(self.node_range(node)), self.edge_range(edge)
        for along, against, norm in zip(self.forward_convs, self.backward_convs, self.norms, strict=True):
            message = along(hidden, edges, edge) + against(hidden, edges.flip(0), edge)
            hidden = norm(hidden + torch.relu(message))
        everything = mean_by_graph(hidden, graph) if len(self.norms) else torch.zeros_like(hidden)
        return self.readout(torch.cat([hidden, everything], dim=-1))


def _conv(width: int, edge_features: int, aggregate: Aggregate) -> GINEConv:
    network = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    return GINEConv(network, edge_dim=edge_features, aggr="mean" if aggregate == "mean" else _several(width))


def _several(width: int) -> MultiAggregation:
    sizes = {"in_channels": width, "out_channels": width}
    return MultiAggregation([*SEVERAL], mode="proj", mode_kwargs=sizes)


class UnitGraph(nn.Module):
    """An op encoder (`encoder.OpEncoder`): embeddings of `width` after `rounds` rounds of messages between units.

    With `kept_apart` the mean embedding of the graph is subtracted (`columns.apart`).
    """

    def __init__(
        self,
        columns: Columns,
        *,
        width: int = 64,
        rounds: int = 3,
        aggregate: Aggregate = "mean",
        kept_apart: bool = True,
    ) -> None:
        super().__init__()
        self.columns, self.width, self.own_width, self.kept_apart = columns, width, columns.width, kept_apart
        self.encoder = GNNEncoder(columns.width, EDGE_FEATURES, width=width, rounds=rounds, aggregate=aggregate)

    def constants(self, problem: Problem, units: Units) -> GraphFeatures:
        return GraphFeatures(self.columns.ops(problem, units), *edges_with_features(problem, units))

    def widen_ranges(self, constants: Sequence[GraphFeatures]) -> None:
        self.encoder.widen_ranges(constants)

    def forward(self, constants: GraphFeatures) -> Float[Tensor, "units width"]:
        embedded = self.encoder(constants.node, constants.edges, constants.edge)
        return apart(embedded) if self.kept_apart else embedded

    def own(self, constants: GraphFeatures) -> Float[Tensor, "units own_width"]:
        return self.encoder.node_range(constants.node)
