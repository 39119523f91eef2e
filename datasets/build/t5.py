"""T5 (Raffel et al. 2020, "Exploring the Limits of Transfer Learning", sections 2.1, 3.1 and 3.7): encoder and decoder, by hand.

RMS norm before each part, no biases, scores without a scale, positions by a bias on the scores that all layers of a stack share: one number
a head for each of 32 buckets of relative positions. Dropout 0.1, on the scores too, so attention is op by op. Base (12 + 12 layers of width
768) has 220 M parameters, 222,903,552 with the released vocabulary; Large (24 + 24 of 1024) 770 M in the paper, 737,668,096 released and
here. The decoder's layers are numbered after the encoder's: they follow them in the row of layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import join_heads, split_heads

BUCKETS, FARTHEST, DROPOUT, EPSILON = 32, 128, 0.1, 1e-6


@dataclass(frozen=True)
class Sizes:
    """Of the model; `layers` each of the encoder and of the decoder, heads of width 64."""

    vocabulary: int = 32_128
    width: int = 768
    heads: int = 12
    inner: int = 3072
    layers: int = 12


BASE = Sizes()
LARGE = Sizes(width=1024, heads=16, inner=4096, layers=24)


def buckets(length: int, causal: bool) -> Tensor:
    """The bucket of each pair of positions, `[queries keys]`: one a distance while it is small, then logarithmic up to the farthest.

    Half of the buckets are for keys after the query, or none where the query doesn't see them.
    """
    ahead = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    count = BUCKETS if causal else BUCKETS // 2
    distance = (-ahead).clamp(min=0) if causal else ahead.abs()
    exact = count // 2
    far = exact + (torch.log(distance.clamp(min=1) / exact) / math.log(FARTHEST / exact) * (count - exact)).long()
    bucket = torch.where(distance < exact, distance, far.clamp(max=count - 1))
    return bucket if causal else bucket + (ahead > 0) * count


class RelativeBias(nn.Module):
    """What a stack's layers add to their scores, `[1 heads queries keys]`: the bias of the bucket, or that nothing ahead is seen."""

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.causal, self.table = causal, nn.Embedding(BUCKETS, heads)

    def forward(self, length: int) -> Tensor:
        bias = self.table(buckets(length, self.causal)).permute(2, 0, 1)[None]
        return bias.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf")) if self.causal else bias


class Attention(nn.Module):
    """Attention of a sequence to another or to itself, normalised before and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.RMSNorm(width, EPSILON)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor, bias: Tensor | None = None, other: Tensor | None = None) -> Tensor:
        seen = self.norm(hidden)
        other = seen if other is None else other
        query, key, value = (split_heads(part, self.heads) for part in (self.query(seen), self.key(other), self.value(other)))
        scores = query @ key.transpose(2, 3)
        weights = self.dropout((scores if bias is None else scores + bias).softmax(dim=-1))
        return hidden + self.dropout(self.out(join_heads(weights @ value)))


class FeedForward(nn.Module):
    """Two products around a ReLU, normalised before and added to its input."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm, self.dropout = nn.RMSNorm(width, EPSILON), nn.Dropout(DROPOUT)
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = self.dropout(functional.relu(self.up(self.norm(hidden))))
        return hidden + self.dropout(self.down(inner))


class Block(nn.Module):
    """Self-attention, in the decoder attention to the encoder's output, and feed-forward."""

    def __init__(self, sizes: Sizes, decodes: bool) -> None:
        super().__init__()
        self.attention = Attention(sizes.width, sizes.heads)
        self.cross = Attention(sizes.width, sizes.heads) if decodes else None
        self.mlp = FeedForward(sizes.width, sizes.inner)

    def forward(self, hidden: Tensor, bias: Tensor, encoded: Tensor | None) -> Tensor:
        hidden = self.attention(hidden, bias)
        return self.mlp(hidden if self.cross is None else self.cross(hidden, other=encoded))


class Stack(nn.Module):
    """The encoder, or the decoder: embedded tokens `[batch length width]` to the same, normalised."""

    def __init__(self, sizes: Sizes, decodes: bool) -> None:
        super().__init__()
        first = sizes.layers if decodes else 0
        self.bias = RelativeBias(sizes.heads, decodes)
        self.dropout_before, self.dropout_after = nn.Dropout(DROPOUT), nn.Dropout(DROPOUT)
        self.layers = nn.ModuleDict({str(first + layer): Block(sizes, decodes) for layer in range(sizes.layers)})
        self.norm = nn.RMSNorm(sizes.width, EPSILON)

    def forward(self, embedded: Tensor, encoded: Tensor | None = None) -> Tensor:
        hidden, bias = self.dropout_before(embedded), self.bias(embedded.shape[1])
        for layer in self.layers.values():
            hidden = layer(hidden, bias, encoded)
        return self.dropout_after(self.norm(hidden))


class T5(nn.Module):
    """Ids of the source and of the target so far to logits `[batch target vocabulary]`; one embedding for all three."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.encoder, self.decoder = Stack(sizes, decodes=False), Stack(sizes, decodes=True)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        decoded = self.decoder(self.embedding(target), self.encoder(self.embedding(source)))
        return self.head(decoded * self.embedding.embedding_dim**-0.5)
