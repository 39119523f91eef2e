"""The GNN encoder: message passing over the graph of units, along edges and against them, with what they carry.

Directions keep separate weights (GINE convolutions of PyG), sums are means over neighbours, and every unit also
sees the mean of all. Without message passing each unit is encoded from its own features: the ablation.

Features are clamped to the range that they had in training: networks extrapolate badly, and the weights of a column
that never varied in training (a time step, where no graph was recurrent) are those of initialisation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch_geometric.nn import GINEConv

from gnnplace.policies.encoders.columns import Columns
from gnnplace.policies.features import EDGE_FEATURES, GraphFeatures, edges_with_features
from gnnplace.problems import Problem
from gnnplace.units.units import Units


class GNNEncoder(nn.Module):
    """Features -> Float["nodes width"]. `rounds` rounds of message passing; 0 leaves it out."""

    def __init__(self, node_features: int, edge_features: int, *, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.node_range, self.edge_range = TrainedRange(node_features), TrainedRange(edge_features)
        self.embed = nn.Sequential(nn.Linear(node_features, width), nn.ReLU(), nn.Linear(width, width))
        self.forward_convs = nn.ModuleList(_conv(width, edge_features) for _ in range(rounds))
        self.backward_convs = nn.ModuleList(_conv(width, edge_features) for _ in range(rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.LayerNorm(width))

    def widen_ranges(self, graphs: Sequence[GraphFeatures]) -> None:
        """Widen the ranges to these graphs' features; the features of other graphs are clamped to them."""
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
        """`graph` numbers the graph of each node where there are several, `0..graphs-1`, none of them without nodes."""
        hidden, edge = self.embed(self.node_range(node)), self.edge_range(edge)
        for along, against, norm in zip(self.forward_convs, self.backward_convs, self.norms, strict=True):
            message = along(hidden, edges, edge) + against(hidden, edges.flip(0), edge)
            hidden = norm(hidden + torch.relu(message))
        everything = mean_by_graph(hidden, graph) if len(self.norms) else torch.zeros_like(hidden)
        return self.readout(torch.cat([hidden, everything], dim=-1))


class TrainedRange(nn.Module):
    """Clamps every column to its values in training; changes nothing while there are none."""

    lowest: Tensor
    highest: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("lowest", torch.full((columns,), torch.inf))
        self.register_buffer("highest", torch.full((columns,), -torch.inf))

    def widen(self, rows: Float[Tensor, "rows columns"]) -> None:
        """The range takes in these rows, of which there may be none."""
        if len(rows):
            self.lowest, self.highest = (
                torch.minimum(self.lowest, rows.amin(0)),
                torch.maximum(self.highest, rows.amax(0)),
            )

    def forward(self, values: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        return values if (self.lowest > self.highest).any() else values.clamp(self.lowest, self.highest)


def _conv(width: int, edge_features: int) -> GINEConv:
    return GINEConv(
        nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), edge_dim=edge_features, aggr="mean"
    )


SMALLEST = 1e-6  # below this mean square the rows are equal: a graph of one unit, say


def apart(
    rows: Float[Tensor, "rows width"], graph: Int64[Tensor, " rows"] | None = None
) -> Float[Tensor, "rows width"]:
    """Without what all rows of a graph share, and scaled to a mean square of 1 (PairNorm, Zhao and Akoglu, ICLR 2020).

    What a GNN's embeddings share is several times as large as what parts them. A Grouper that reads them as they are
    moves all units at once, and ends with one group. `graph` is as in `mean_by_graph`.
    """
    centred = rows - mean_by_graph(rows, graph)
    square = mean_by_graph(centred.square().mean(dim=1, keepdim=True), graph)
    return centred / square.clamp(min=SMALLEST).sqrt()


def mean_by_graph(
    rows: Float[Tensor, "rows width"], graph: Int64[Tensor, " rows"] | None
) -> Float[Tensor, "rows width"]:
    """For each row the mean over its graph; `graph` numbers the graphs,
    `0..graphs-1` with a row at least, and None is one graph.
    """
    if graph is None:
        return rows.mean(dim=0, keepdim=True).expand_as(rows)
    nodes = graph.bincount()
    sums = rows.new_zeros(len(nodes), rows.shape[1]).index_add(0, graph, rows)
    return (sums / nodes.unsqueeze(1))[graph]


class UnitGraph(nn.Module):
    """Embeddings of `width` for each unit, after `rounds` rounds of message passing.

    `kept_apart=False` leaves in what all embeddings of a graph have in common.
    """

    def __init__(self, columns: Columns, *, width: int = 64, rounds: int = 3, kept_apart: bool = True) -> None:
        super().__init__()
        self.columns, self.width, self.own_width, self.kept_apart = columns, width, columns.width, kept_apart
        self.encoder = GNNEncoder(columns.width, EDGE_FEATURES, width=width, rounds=rounds)

    def constants(self, problem: Problem, units: Units) -> GraphFeatures:
        return GraphFeatures(self.columns.ops(problem, units), *edges_with_features(problem, units))

    def widen_ranges(self, constants: Sequence[GraphFeatures]) -> None:
        self.encoder.widen_ranges(constants)

    def forward(self, constants: GraphFeatures) -> Float[Tensor, "units width"]:
        embedded = self.encoder(constants.node, constants.edges, constants.edge)
        return apart(embedded) if self.kept_apart else embedded

    def own(self, constants: GraphFeatures) -> Float[Tensor, "units own_width"]:
        return self.encoder.node_range(constants.node)
