"""SASRec (Kang & McAuley 2018, "Self-Attentive Sequential Recommendation", section III): a causal transformer over what a user has seen.

Two blocks of one head of width 50 over 200 items, dropout 0.2, for the 3,416 items of MovieLens-1M (sections IV-A and IV-D). Queries are
normalised before the attention, keys and values are not, as in the authors' code. The item that comes next is told from one drawn at
random by the products of their embeddings with the output. Item 0 stands for none; its place holds 0 and counts in no loss, but later
places see it, which the authors' code masks as well and the paper doesn't tell of.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-8


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    items: int = 3416
    length: int = 200
    width: int = 50
    blocks: int = 2
    dropout: float = 0.2


FULL = Sizes()


class Attention(nn.Module):
    """One head of attention of each place to itself and those before it, `[batch length width]`, added to its queries."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width, EPSILON), nn.Dropout(dropout)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, hidden: Tensor) -> Tensor:
        seen = self.norm(hidden)
        query, key, value = self.query(seen), self.key(hidden), self.value(hidden)
        later = torch.ones(hidden.shape[1], hidden.shape[1], dtype=torch.bool).triu(1)
        scores = (query @ key.transpose(1, 2) * query.shape[2] ** -0.5).masked_fill(later, -torch.inf)
        return seen + self.dropout(scores.softmax(dim=2)) @ value


class FeedForward(nn.Module):
    """Two products of the same width around a ReLU, normalised before and added to what was normalised."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width, EPSILON), nn.Dropout(dropout)
        self.inner, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        seen = self.norm(hidden)
        return seen + self.dropout(self.out(self.dropout(functional.relu(self.inner(seen)))))


class SASRec(nn.Module):
    """Items seen, items that came next and items drawn at random, `[batch length]` each, to the loss."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        self.items = nn.Embedding(sizes.items + 1, sizes.width)
        self.position = nn.Parameter(torch.zeros(sizes.length, sizes.width))
        self.dropout = nn.Dropout(sizes.dropout)
        parts = (Attention, FeedForward)
        self.blocks = nn.ModuleList(nn.ModuleList(part(sizes.width, sizes.dropout) for part in parts) for _ in range(sizes.blocks))
        self.norm = nn.LayerNorm(sizes.width, EPSILON)

    def encoded(self, seen: Tensor) -> Tensor:
        """`[batch length]` to `[batch length width]`; places without an item hold 0 until the last norm."""
        valid = (seen != 0)[:, :, None]
        hidden = self.dropout(self.items(seen) * self.items.embedding_dim**0.5 + self.position) * valid
        for attention, forward in self.blocks:
            hidden = forward(attention(hidden)) * valid
        return self.norm(hidden)

    def forward(self, seen: Tensor, following: Tensor, others: Tensor) -> Tensor:
        hidden, valid = self.encoded(seen), (following != 0).float()
        yes, no = ((hidden * self.items(items)).sum(dim=2) for items in (following, others))
        return -((functional.logsigmoid(yes) + functional.logsigmoid(-no)) * valid).sum() / valid.sum()
