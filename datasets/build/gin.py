"""The graph isomorphism network (Xu et al. 2019, "How Powerful are Graph Neural Networks?", section 7): which kind is a whole graph?

Four aggregations of 64 units (five layers with the input, as the paper counts), each a perceptron of two layers over a node's own features,
weighted by 1 + epsilon, and the sum of its neighbours'; batch norm after each product. Every layer's nodes, the input's too, are summed
over each graph and give logits, which are added up, with dropout 0.5. A batch of 128 graphs of COLLAB (5,000 of 74.5 nodes and 2,457.8
edges on average): 9,536 nodes, whose degree is their feature, one of 367, and 629,198 edges, both directions counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """Of the model and of a batch of its graphs."""

    graphs: int = 128
    nodes: int = 9_536
    edges: int = 629_198
    features: int = 367
    units: int = 64
    aggregations: int = 4
    classes: int = 3


FULL = Sizes()
DROPOUT = 0.5


class Aggregation(nn.Module):
    """Node features `[nodes before]` to `[nodes units]`: a perceptron of a node's own and the sum of its neighbours' features."""

    def __init__(self, before: int, units: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.perceptron = nn.Sequential(nn.Linear(before, units), nn.BatchNorm1d(units), nn.ReLU(), nn.Linear(units, units))
        self.norm = nn.BatchNorm1d(units)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        summed = torch.zeros_like(nodes).index_add(0, target, nodes.index_select(0, source))
        return functional.relu(self.norm(self.perceptron((1 + self.epsilon) * nodes + summed)))


class Readout(nn.Module):
    """Node features `[nodes width]` and the graph of each node to logits `[graphs classes]`."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(width, classes), nn.Dropout(DROPOUT)

    def forward(self, nodes: Tensor, graph: Tensor, graphs: int) -> Tensor:
        return self.dropout(self.linear(nodes.new_zeros(graphs, nodes.shape[1]).index_add(0, graph, nodes)))


class GIN(nn.Module):
    """Node features `[nodes features]`, edges and the graph of each node to logits `[graphs classes]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        self.graphs, widths = sizes.graphs, [sizes.features, *[sizes.units] * sizes.aggregations]
        self.layers = nn.ModuleList(Aggregation(before, sizes.units) for before in widths[:-1])
        self.readouts = nn.ModuleList(Readout(width, sizes.classes) for width in widths)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor, graph: Tensor) -> Tensor:
        first, *others = self.readouts
        logits = first(nodes, graph, self.graphs)
        for layer, readout in zip(self.layers, others, strict=True):
            nodes = layer(nodes, source, target)
            logits = logits + readout(nodes, graph, self.graphs)
        return logits
