"""A graph convolutional network (Kipf & Welling 2017) of three layers, on a whole graph, as plain gathers and sums of messages.

100,000 nodes, 1,000,000 directed edges and a self-loop each (between the sizes of ogbn-arxiv and ogbn-products), 256 features. A layer
multiplies its input by its weights, scales each edge's message by `1 / sqrt(degree * degree)`, which is given, and adds the messages up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

DROPOUT = 0.5


@dataclass(frozen=True)
class Sizes:
    """Of the model and of its graph; self-loops are not among the edges."""

    nodes: int = 100_000
    edges: int = 1_000_000
    features: int = 256
    classes: int = 40
    layers: int = 3


FULL = Sizes()


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

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        widths = [sizes.features] * sizes.layers
        self.layers = nn.ModuleList(Convolution(before, after) for before, after in pairwise([*widths, sizes.classes]))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            nodes = self.dropout(torch.relu(layer(nodes, source, target, weight)))
        return self.layers[-1](nodes, source, target, weight)
