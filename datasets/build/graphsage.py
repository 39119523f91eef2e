"""GraphSAGE with the mean aggregator (Hamilton, Ying & Leskovec 2017), one minibatch of the Reddit graph with its sampled neighbours.

As in the paper (section 4): two layers, 25 and 10 neighbours, 512 nodes a batch, 602 features, 41 classes; 128 units for a node and 128 of
its neighbours, side by side (the published programme's default). For the classes of 512 nodes the first layer is needed at these and at 10
neighbours of each, at 5,632 nodes, and the features of those and of 25 neighbours of each: of 146,432 nodes, the 5,632 first. Each layer
has an edge list of its own. The last output has length 1. 230,185 parameters, counted by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """Of the model and of its minibatch; `fanouts` are the neighbours that each layer samples, the last layer's last."""

    batch: int = 512
    fanouts: tuple[int, ...] = (25, 10)
    features: int = 602
    units: int = 128
    classes: int = 41

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes that each layer takes, and those that the last one puts out."""
        counts = [self.batch]
        for fanout in reversed(self.fanouts):
            counts.append(counts[-1] * (1 + fanout))
        return tuple(reversed(counts))


FULL = Sizes()


class Aggregation(nn.Module):
    """Node features `[nodes before]` to those of the first `kept` nodes, `[kept 2*units]`: their own and the mean of their neighbours'."""

    def __init__(self, before: int, units: int) -> None:
        super().__init__()
        self.own, self.neighbours = nn.Linear(before, units, bias=False), nn.Linear(before, units, bias=False)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor, kept: int) -> Tensor:
        messages = nodes.index_select(0, source)
        summed = nodes.new_zeros(kept, nodes.shape[1]).index_add(0, target, messages)
        mean = summed / (len(source) // kept)
        return torch.cat([self.own(nodes[:kept]), self.neighbours(mean)], dim=1)


class GraphSAGE(nn.Module):
    """Node features `[nodes features]` and a source and a target list for each layer to logits `[batch classes]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        self.kept = sizes.nodes[1:]
        widths = [sizes.features, *[2 * sizes.units] * len(sizes.fanouts)]
        self.layers = nn.ModuleList(Aggregation(before, after // 2) for before, after in pairwise(widths))
        self.out = nn.Linear(widths[-1], sizes.classes)

    def forward(self, nodes: Tensor, *edges: Tensor) -> Tensor:
        for i, (layer, kept) in enumerate(zip(self.layers, self.kept, strict=True)):
            nodes = layer(nodes, edges[2 * i], edges[2 * i + 1], kept)
            if i < len(self.layers) - 1:
                nodes = torch.relu(nodes)
        return self.out(functional.normalize(nodes, dim=1))
