"""NeuMF (He et al. 2017, "Neural Collaborative Filtering", sections 3.3 and 3.4): matrix factorisation beside a perceptron.

A user and an item have two embeddings each: two of 64 that are multiplied and two of 128 that a perceptron of 256, 128 and 64 joins; the
two results together give the logit. Sizes of the MLPerf benchmark (v0.5), MovieLens-20M with 138,493 users and 26,744 items: 31,832,577
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """Of the model; `widths` are those of the perceptron, the first of them both of its embeddings'."""

    users: int = 138_493
    items: int = 26_744
    factors: int = 64
    widths: tuple[int, ...] = (256, 256, 128, 64)


FULL = Sizes()


class Perceptron(nn.Module):
    """Users and items `[batch]` to features `[batch width]`, layer by layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        half = sizes.widths[0] // 2
        self.user, self.item = nn.Embedding(sizes.users, half), nn.Embedding(sizes.items, half)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(sizes.widths)))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.layers(torch.cat([self.user(users), self.item(items)], dim=1))


class Factorisation(nn.Module):
    """Users and items `[batch]` to the products of their factors `[batch factors]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(sizes.users, sizes.factors), nn.Embedding(sizes.items, sizes.factors)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.user(users) * self.item(items)


class NeuMF(nn.Module):
    """Users and items `[batch]` to a logit of their having met `[batch]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        self.factorisation, self.perceptron = Factorisation(sizes), Perceptron(sizes)
        self.out = nn.Linear(sizes.factors + sizes.widths[-1], 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        return self.out(torch.cat([self.factorisation(users, items), self.perceptron(users, items)], dim=1)).squeeze(1)
