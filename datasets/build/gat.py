"""A graph attention network (Velickovic et al. 2018) for protein interactions (PPI), on two graphs at once.

As in the paper (section 3.3, inductive learning): two layers of four heads of 256 features, joined, ELU after each, and one of six heads of
121 classes, averaged; the second layer's input is added to its output; 50 features; 1,851,522 parameters. Two average graphs of the 24 have
4,746 nodes together and, both ways, 136,454 edges; each node is its own neighbour, too. A head's share of an edge is the softmax over the
edges of its target; of the scores' largest, subtracted for the sake of the exponential, no gradient is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

SLOPE = 0.2


@dataclass(frozen=True)
class Sizes:
    """Of the model and of its graphs; self-loops are not among the edges."""

    nodes: int = 4_746
    edges: int = 136_454
    features: int = 50
    classes: int = 121
    heads: tuple[int, int, int] = (4, 4, 6)
    width: int = 256


FULL = Sizes()


class Attention(nn.Module):
    """Node features `[nodes before]` to `[nodes heads after]` along edges from `source` to `target`."""

    def __init__(self, before: int, after: int, heads: int) -> None:
        super().__init__()
        self.linear = nn.Linear(before, heads * after, bias=False)
        self.to_source, self.to_target = (nn.Parameter(torch.randn(heads, after) / after**0.5) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads, after))

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        hidden = self.linear(nodes).view(len(nodes), *self.bias.shape)
        sent, received = (hidden * self.to_source).sum(dim=2), (hidden * self.to_target).sum(dim=2)  # [nodes heads]
        scores = functional.leaky_relu(sent.index_select(0, source) + received.index_select(0, target), SLOPE)
        shares = _softmax(scores, target, len(nodes))
        messages = hidden.index_select(0, source) * shares[:, :, None]
        return torch.zeros_like(hidden).index_add(0, target, messages) + self.bias


class GAT(nn.Module):
    """Node features `[nodes features]` and edges to logits `[nodes classes]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        first, second, last = sizes.heads
        widths = (sizes.features, first * sizes.width, second * sizes.width)
        self.layers = nn.ModuleList([Attention(before, sizes.width, heads) for before, heads in zip(widths, (first, second), strict=False)])
        self.layers.append(Attention(widths[2], sizes.classes, last))

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        first, second, last = self.layers
        nodes = functional.elu(first(nodes, source, target).flatten(1))
        nodes = nodes + functional.elu(second(nodes, source, target).flatten(1))
        return last(nodes, source, target).mean(dim=1)


def _softmax(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
    """Of `[edges heads]` over the edges of each target."""
    places = target[:, None].expand_as(scores)
    largest = scores.new_zeros(nodes, scores.shape[1]).scatter_reduce(0, places, scores.detach(), "amax", include_self=False)
    powers = (scores - largest.index_select(0, target)).exp()
    summed = scores.new_zeros(nodes, scores.shape[1]).index_add(0, target, powers)
    return powers / summed.index_select(0, target)
