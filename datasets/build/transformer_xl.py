"""Transformer-XL (Dai et al. 2019, section 3): a segment attends to itself and to the hidden states of the segment before it.

Relative positions as in section 3.3: content and position scores with two learned biases for all layers, and the shift of appendix B.
Width 512, 8 heads, inner width 2048, segments and memory of 512 symbols are the authors' base model of enwik8 (204 symbols): with 12 layers
41 M parameters (table 2), 41,055,436 in their code. GO (Zhou et al. 2020) places 2, 4 and 8 layers and doesn't give their width. Op by op,
normalised after each part; the memory of each layer is an input, and what the next segment would remember is not returned.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import join_heads, split_heads

DROPOUT = 0.1


@dataclass(frozen=True)
class Sizes:
    """Of the model; `memory` symbols of the segment before are seen."""

    layers: int
    vocabulary: int = 204
    memory: int = 512
    width: int = 512
    heads: int = 8
    inner: int = 2048


def waves(length: int, width: int) -> Tensor:
    """The sinusoid of each distance from `length - 1` down to 0, `[length width]`."""
    frequencies = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length - 1, -1, -1), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def shifted(scores: Tensor) -> Tensor:
    """Column j of row i is what stood in column j + queries - 1 - i: from distances to positions of keys (appendix B)."""
    batch, heads, queries, keys = scores.shape
    return functional.pad(scores, (1, 0)).view(batch, heads, keys + 1, queries)[:, :, 1:].view(batch, heads, queries, keys)


class Attention(nn.Module):
    """Attention of a segment to the memory and itself, by content and by distance."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key_value = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.distance, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor, memory: Tensor, distances: Tensor, biases: Tensor, hides: Tensor) -> Tensor:
        """`distances` are the waves `[keys width]`, `biases` those of all layers `[2 heads 1 head width]`, `hides` is `[queries keys]`."""
        query = split_heads(self.query(hidden), self.heads)
        key, value = (split_heads(part, self.heads) for part in self.key_value(torch.cat([memory, hidden], dim=1)).chunk(2, dim=-1))
        far = self.distance(distances).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        by_content, by_distance = biases.unbind()
        content = (query + by_content) @ key.transpose(2, 3)
        position = torch.einsum("bhqw,hkw->bhqk", query + by_distance, far)
        scores = (content + shifted(position)) * query.shape[-1] ** -0.5
        return self.out(join_heads(scores.masked_fill(hides, float("-inf")).softmax(dim=-1) @ value))


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and normalised after."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention, self.norm_1 = Attention(sizes.width, sizes.heads), nn.LayerNorm(sizes.width)
        self.up, self.down = nn.Linear(sizes.width, sizes.inner), nn.Linear(sizes.inner, sizes.width)
        self.norm_2, self.dropout = nn.LayerNorm(sizes.width), nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor, memory: Tensor, distances: Tensor, biases: Tensor, hides: Tensor) -> Tensor:
        hidden = self.norm_1(hidden + self.dropout(self.attention(hidden, memory, distances, biases, hides)))
        inner = self.dropout(functional.relu(self.up(hidden)))
        return self.norm_2(hidden + self.dropout(self.down(inner)))


class TransformerXL(nn.Module):
    """Symbols `[batch length]` and each layer's memory `[batch memory width]` to logits; the embedding is tied to the last layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.dropout_before, self.dropout_after = nn.Dropout(DROPOUT), nn.Dropout(DROPOUT)
        self.biases = nn.Parameter(torch.zeros(2, sizes.heads, 1, sizes.width // sizes.heads))
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.width, sizes.vocabulary)
        self.head.weight = self.embedding.weight

    def forward(self, symbols: Tensor, *memories: Tensor) -> Tensor:
        length, memory = symbols.shape[1], memories[0].shape[1]
        hidden = self.dropout_before(self.embedding(symbols) * self.embedding.embedding_dim**0.5)
        distances = self.dropout_before(waves(memory + length, hidden.shape[2]))
        hides = torch.ones(length, memory + length, dtype=torch.bool).triu(1 + memory)
        for layer, remembered in zip(self.layers, memories, strict=True):
            hidden = layer(hidden, remembered, distances, self.biases, hides)
        return self.head(self.dropout_after(hidden))
