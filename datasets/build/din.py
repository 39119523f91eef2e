"""The Deep Interest Network (Zhou et al. 2018, sections 4.3 and 5.2): which of a user's past goods speak for a candidate?

A good is embedded by its id and its category, 64 numbers each. A small network (80, 40, 1) weighs each good of the history by that good,
the candidate, their difference and their product, without a softmax (section 4.3); the weighted sum, the candidate and the product of the
two go through layers of 80 and 40. Dice is the activation everywhere (section 5.2). Goods and categories of Amazon (Electronics): 63,001
and 801; histories of 100 goods. Plain SGD, as in the paper (section 6.1), that changes only the rows which were looked up (section 5.1
regularises these alone).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

EPSILON = 1e-8


@dataclass(frozen=True)
class Sizes:
    """Of the model: a good has an embedding of twice the width."""

    goods: int = 63_001
    categories: int = 801
    width: int = 64
    history: int = 100
    hidden: tuple[int, int] = (80, 40)


FULL = Sizes()


class Dice(nn.Module):
    """`[rows width]`: kept by its probability, as it lies among its batch, and weighted by a learned slope by the rest of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.slope = nn.BatchNorm1d(width, EPSILON, affine=False), nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor) -> Tensor:
        kept = torch.sigmoid(self.norm(hidden))
        return kept * hidden + (1 - kept) * self.slope * hidden


class Perceptron(nn.Sequential):
    """Layers of these widths with Dice between them, and one number at the end."""

    def __init__(self, *widths: int) -> None:
        layers = [nn.Sequential(nn.Linear(before, after), Dice(after)) for before, after in pairwise(widths)]
        super().__init__(*layers, nn.Linear(widths[-1], 1))


class Goods(nn.Module):
    """Ids of goods and of their categories `[...]` to embeddings `[... 2*width]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.good = nn.Embedding(sizes.goods, sizes.width, sparse=True)
        self.category = nn.Embedding(sizes.categories, sizes.width, sparse=True)

    def forward(self, goods: Tensor, categories: Tensor) -> Tensor:
        return torch.cat([self.good(goods), self.category(categories)], dim=-1)


class Activation(nn.Module):
    """A candidate `[batch width]` and a history `[batch length width]` to the weighted sum of the history `[batch width]`.

    `valid` `[batch length]` is 0 where the history is shorter.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.weigh = Perceptron(8 * sizes.width, *sizes.hidden)

    def forward(self, candidate: Tensor, history: Tensor, valid: Tensor) -> Tensor:
        beside = candidate[:, None].expand_as(history)
        pairs = torch.cat([history, beside, history - beside, history * beside], dim=2)
        weights = self.weigh(pairs.flatten(0, 1)).view_as(valid) * valid
        return torch.bmm(weights[:, None], history).squeeze(1)


class DIN(nn.Module):
    """A candidate and a history, ids and categories each, and which of the history is valid, to a logit of each click `[batch]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        self.goods, self.interest = Goods(sizes), Activation(sizes)
        self.out = Perceptron(6 * sizes.width, *sizes.hidden)

    def forward(self, good: Tensor, category: Tensor, goods: Tensor, categories: Tensor, valid: Tensor) -> Tensor:
        candidate = self.goods(good, category)
        interest = self.interest(candidate, self.goods(goods, categories), valid)
        return self.out(torch.cat([interest, candidate, interest * candidate], dim=1)).squeeze(1)
