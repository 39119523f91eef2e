"""A graph convolutional network (Kipf & Welling 2017) of three layers, on a whole graph, as plain gathers and sums of messages.

100,000 nodes, 1,000,000 directed edges and a self-loop each (between the sizes of ogbn-arxiv and ogbn-products), 256 features. A layer
multiplies its input by its weights, scales each edge's message by `1 / sqrt(degree * degree)`, which is given, and adds the messages up.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

NODES, EDGES, FEATURES, CLASSES, LAYERS, DROPOUT = 100_000, 1_000_000, 256, 40, 3, 0.5


class Convolution(nn.Module):
    """Node features `[nodes before]` to `[nodes after]` along edges from `source` to `target`, each of a `weight`."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.linear = nn.Linear(before, after, bias=False)
        self.bias = nn.Parameter(torch.zeros(after))

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        messages = self.linear(nodes).index_select(0, source) * weight[:, None]
        summed = messages.new_zeros(nodes.shape[0], messages.shape[1]).index_add(0, target, messages)
        return summed + self.bias


class GCN(nn.Module):
    """Node features `[nodes features]` and edges to logits `[nodes classes]`."""

    def __init__(self) -> None:
        super().__init__()
        widths = [FEATURES] * LAYERS
        self.layers = nn.ModuleList(Convolution(before, after) for before, after in zip(widths, [*widths[1:], CLASSES], strict=True))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            nodes = self.dropout(torch.relu(layer(nodes, source, target, weight)))
        return self.layers[-1](nodes, source, target, weight)
