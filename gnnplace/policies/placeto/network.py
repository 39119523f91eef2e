"""Placeto's network: messages along and against the graph, pools over the current group's relatives, a device head.

Addanki et al., "Placeto: Learning Generalizable Device Placement Algorithms for Distributed Machine Learning" (NeurIPS
2019), and its workshop paper (2018). Where the papers leave sizes open they are those of the authors' code, with Glorot
weights and no bias at first.

Samples of one graph of groups differ in their columns alone, so tensors are `[graphs, nodes, each, columns]`, and a sum
over neighbours is one product of matrices a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gnnplace.policies.glorot import glorot
from gnnplace.policies.placeto.relatives import Relatives, Sums, around, weights

POOLS = 3  # ancestors, descendants, nodes with no path either way
MOST_ROWS = 1 << 18  # of all rounds and visits of an episode, whose activations are kept; they take about 100 MiB
FEW_ROWS = 1 << 11  # above it products are large by themselves: side by side they gain no time, and fragment the heap


class PlacetoNetwork(nn.Module):
    """The logits of `devices` for one node of each graph.

    With `residual`, as in the authors' code, a transform of a node's own columns is added to its messages in each of
    `rounds` rounds. Without it a round is the papers' equation `x_v <- g(sum of f(x_u))` alone. `sums` are sums over
    sets of nodes, or their means.
    """

    def __init__(self, columns: int, devices: int, *, rounds: int, residual: bool = True, sums: Sums = "sum") -> None:
        super().__init__()
        self.sums = sums
        self.transform = perceptron(columns, columns, columns, columns) if residual else nn.Identity()
        self.down, self.up = (Messages(columns, rounds, residual) for _ in range(2))
        self.pools = nn.ModuleList(SetEmbedding(2 * columns) for _ in range(POOLS))
        both = (POOLS + 1) * 2 * columns
        self.head = perceptron(both, 2 * both, both, devices)
        glorot(self)

    def forward(
        self, node: Float[Tensor, "graphs nodes each columns"], relatives: Relatives, current: Int[Tensor, " graphs"]
    ) -> Float[Tensor, "graphs each devices"]:
        """The logits of node `current[i]` of graph i."""
        hidden = self.transform(node)
        embedding = torch.cat(self._ways(hidden, relatives), dim=-1)
        members = weights(around(relatives, current), self.sums)
        pooled = [pool(embedding, members[:, number]) for number, pool in enumerate(self.pools)]
        itself = embedding[torch.arange(len(current), device=current.device), current]
        return self.head(torch.cat([*pooled, itself], dim=-1))

    def _ways(self, hidden: Float[Tensor, "graphs nodes each columns"], relatives: Relatives) -> tuple[Tensor, ...]:
        if hidden.shape[:-1].numel() > FEW_ROWS:
            return self.down(hidden, relatives.from_parents), self.up(hidden, relatives.from_children)
        neighbours = torch.stack([relatives.from_parents, relatives.from_children])
        return both_ways((self.down, self.up), hidden, neighbours).unbind()


def visited(
    network: PlacetoNetwork,
    node: Float[Tensor, "graphs nodes each columns"],
    relatives: Relatives,
    current: Int[Tensor, " graphs"],
    *,
    visits: int,
) -> Float[Tensor, "graphs each devices"]:
    """The logits at one of `visits` visits.

    If the activations of all visits exceed `MOST_ROWS`, the backward pass computes them again.
    """
    rows = visits * node.shape[:-1].numel() * network.down.rounds
    if not torch.is_grad_enabled() or rows <= MOST_ROWS:
        return network(node, relatives, current)
    return checkpoint(network, node, relatives, current, use_reentrant=False, preserve_rng_state=False)


class Messages(nn.Module):
    """Rounds of messages in one direction; nodes without neighbours keep their start."""

    def __init__(self, width: int, rounds: int, residual: bool) -> None:
        super().__init__()
        self.rounds, self.residual = rounds, residual
        self.sent, self.heard = perceptron(width, width, width), perceptron(width, width, width)

    def forward(
        self, start: Float[Tensor, "graphs nodes each width"], neighbours: Float[Tensor, "graphs nodes nodes"]
    ) -> Float[Tensor, "graphs nodes each width"]:
        return both_ways((self,), start, neighbours[None])[0]


def both_ways(
    ways: Sequence[Messages],
    start: Float[Tensor, "graphs nodes each width"],
    neighbours: Float[Tensor, "ways graphs nodes nodes"],
) -> Float[Tensor, "ways graphs nodes each width"]:
    """The messages of each direction, computed side by side.

    Their matrices are small: half as many products take half the time.
    """
    sent, received = (SideBySide([getattr(way, part) for way in ways]) for part in ("sent", "heard"))
    hears = (neighbours.sum(-1) > 0)[..., None, None]
    hidden = start.expand(len(ways), *start.shape)
    for _ in range(ways[0].rounds):
        told = total(neighbours.flatten(0, 1), torch.relu(sent(hidden)).flatten(0, 1)).view(hidden.shape)
        message = torch.relu(received(told))
        hidden = torch.where(hears, message + start if ways[0].residual else message, start)
    return hidden


class SideBySide:
    """Perceptrons of equal widths, each with its own rows, as one batch of products."""

    def __init__(self, perceptrons: Sequence[nn.Sequential]) -> None:
        layers = [[layer for layer in perceptron if isinstance(layer, nn.Linear)] for perceptron in perceptrons]
        self._layers = [
            (
                torch.stack([layer.weight.t() for layer in same]),
                torch.stack([layer.bias for layer in same]).unsqueeze(1),
            )
            for same in zip(*layers, strict=True)
        ]

    def __call__(self, rows: Float[Tensor, "perceptrons *rows width"]) -> Float[Tensor, "perceptrons *rows following"]:
        hidden = rows.flatten(1, -2)
        for number, (weight, bias) in enumerate(self._layers):
            hidden = torch.baddbmm(bias, torch.relu(hidden) if number else hidden, weight)
        return hidden.view(*rows.shape[:-1], -1)


class SetEmbedding(nn.Module):
    """One embedding for a set of nodes of each graph."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.each, self.all = perceptron(width, width, width), perceptron(width, width, width)

    def forward(
        self, embedding: Float[Tensor, "graphs nodes each width"], members: Float[Tensor, "graphs nodes"]
    ) -> Float[Tensor, "graphs each width"]:
        return torch.relu(self.all(total(members.unsqueeze(1), torch.relu(self.each(embedding))).squeeze(1)))


def total(
    by: Float[Tensor, "graphs sets nodes"], rows: Float[Tensor, "graphs nodes each width"]
) -> Float[Tensor, "graphs sets each width"]:
    """The weighted sum of the rows of each set."""
    return (by @ rows.flatten(2)).view(*by.shape[:2], *rows.shape[2:])


def perceptron(*widths: int) -> nn.Sequential:
    """Affine layers with ReLU between them and nothing behind the last."""
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.ReLU(), nn.Linear(width, following)]
    return nn.Sequential(*layers[1:])
