"""Placeto's network: messages along the graph and against it, pools over the relatives of the group at hand, and a head for its device.

Addanki et al., "Placeto: Learning Generalizable Device Placement Algorithms for Distributed Machine Learning" (NeurIPS 2019), and its
workshop paper (2018). Where the papers leave sizes open they are those of the authors' code, with Glorot weights and no bias at first.

Samples of one graph of groups differ in their columns alone, so tensors are `[graphs, nodes, each, columns]`, and a sum over neighbours is
one product of matrices a graph.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gnnplace.policies.networks.glorot import glorot
from gnnplace.policies.relatives import Relatives, Sums, around, weights

POOLS = 3  # ancestors, descendants, nodes with no path either way


class PlacetoNetwork(nn.Module):
    """The logits of `devices` for one node of each graph.

    With `residual`, as in the authors' code, a transform of a node's own columns is added to what it hears in each of `rounds` rounds.
    Without, a round is the papers' equation `x_v <- g(sum of f(x_u))` alone. `sums` are sums over sets of nodes, or their means.
    """

    def __init__(self, columns: int, devices: int, *, rounds: int, residual: bool = True, sums: Sums = "sum") -> None:
        super().__init__()
        self.sums = sums
        self.transform = perceptron(columns, columns, columns, columns) if residual else nn.Identity()
        self.down, self.up = (Messages(columns, rounds, residual) for _ in range(2))
        self.pools = nn.ModuleList(Pool(2 * columns) for _ in range(POOLS))
        both = (POOLS + 1) * 2 * columns
        self.head = perceptron(both, 2 * both, both, devices)
        glorot(self)

    def forward(
        self, node: Float[Tensor, "graphs nodes each columns"], of: Relatives, current: Int[Tensor, " graphs"]
    ) -> Float[Tensor, "graphs each devices"]:
        """The logits of node `current[i]` of graph i."""
        own = self.transform(node)
        embedding = torch.cat([self.down(own, of.from_parents), self.up(own, of.from_children)], dim=-1)
        members = weights(around(of, current), self.sums)
        pooled = [pool(embedding, members[:, number]) for number, pool in enumerate(self.pools)]
        here = embedding[torch.arange(len(current), device=current.device), current]
        return self.head(torch.cat([*pooled, here], dim=-1))


def recomputed(
    network: PlacetoNetwork, node: Float[Tensor, "graphs nodes each columns"], of: Relatives, current: Int[Tensor, " graphs"]
) -> Float[Tensor, "graphs each devices"]:
    """The network's logits, computed again in the backward pass: an episode's activations would fill memories."""
    if not torch.is_grad_enabled():
        return network(node, of, current)
    return checkpoint(network, node, of, current, use_reentrant=False, preserve_rng_state=False)


class Messages(nn.Module):
    """Rounds of messages in one direction; nodes that hear from nobody keep what they began with."""

    def __init__(self, width: int, rounds: int, residual: bool) -> None:
        super().__init__()
        self.rounds, self.residual = rounds, residual
        self.sent, self.heard = perceptron(width, width, width), perceptron(width, width, width)

    def forward(
        self, start: Float[Tensor, "graphs nodes each width"], neighbours: Float[Tensor, "graphs nodes nodes"]
    ) -> Float[Tensor, "graphs nodes each width"]:
        hears = (neighbours.sum(-1) > 0)[:, :, None, None]
        hidden = start
        for _ in range(self.rounds):
            message = torch.relu(self.heard(total(neighbours, torch.relu(self.sent(hidden)))))
            hidden = torch.where(hears, message + start if self.residual else message, start)
        return hidden


class Pool(nn.Module):
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
