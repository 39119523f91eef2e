"""A transformer decoder whose feed-forward layers are mixtures of experts that choose their tokens.

Expert choice (Zhou et al. 2022): each expert takes the tokens that score highest for it, as many as its capacity, so
that every shape is known beforehand, the graph is flat and the experts of a layer are parallel branches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.gpt2 import CausalAttention

CAPACITY_FACTOR = 2


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    vocabulary: int = 32_000
    max_length: int = 1024
    width: int = 1024
    heads: int = 16
    layers: int = 6
    experts: int = 8
    expert_width: int = 4096


FULL = Sizes()


class Expert(nn.Module):
    """One feed-forward network."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(tokens)))


class ExpertLayer(nn.Module):
    """Routes tokens to experts and adds what they return, weighted by their scores."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.router = nn.Linear(sizes.width, sizes.experts, bias=False)
        self.experts = nn.ModuleList(Expert(sizes.width, sizes.expert_width) for _ in range(sizes.experts))

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.flatten(0, 1)
        scores = self.router(tokens).softmax(dim=-1).t()
        weights, chosen = scores.topk(tokens.shape[0] * CAPACITY_FACTOR // len(self.experts), dim=-1)
        outputs = [
            expert(tokens.index_select(0, index)) * weight[:, None]
            for expert, index, weight in zip(self.experts, chosen.unbind(), weights.unbind(), strict=True)
        ]
        mixed = torch.zeros_like(tokens).index_add(0, chosen.flatten(), torch.cat(outputs))
        return mixed.view_as(hidden)


class Block(nn.Module):
    """Attention and experts, each normalised before and added to its input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(sizes.width), CausalAttention(sizes.width, sizes.heads)
        self.experts_norm, self.experts = nn.LayerNorm(sizes.width), ExpertLayer(sizes)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.experts(self.experts_norm(hidden))


class MixtureOfExperts(nn.Module):
    """Token ids `[batch length]` to logits `[batch length vocabulary]`; the embedding is tied to the last layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.position = nn.Embedding(sizes.max_length, sizes.width)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))
