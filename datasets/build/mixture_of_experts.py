"""A transformer decoder whose feed-forward layers are mixtures of experts that choose their tokens.

Expert choice (Zhou et al. 2022): each expert takes the tokens that score highest for it, as many as its capacity, so
that every shape is known beforehand, the graph is flat and the experts of a layer are parallel branches.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.gpt2 import CausalAttention

VOCABULARY, WIDTH, HEADS, LAYERS = 32_000, 1024, 16, 6
EXPERTS, EXPERT_WIDTH, CAPACITY_FACTOR = 8, 4096, 2
MAX_LENGTH = 1024


class Expert(nn.Module):
    """One feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, EXPERT_WIDTH)
        self.down = nn.Linear(EXPERT_WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(tokens)))


class ExpertLayer(nn.Module):
    """Routes tokens to experts and adds what they return, weighted by their scores."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.flatten(0, 1)
        scores = self.router(tokens).softmax(dim=-1).t()
        weights, chosen = scores.topk(tokens.shape[0] * CAPACITY_FACTOR // EXPERTS, dim=-1)
        outputs = [
            expert(tokens.index_select(0, index)) * weight[:, None]
            for expert, index, weight in zip(self.experts, chosen.unbind(), weights.unbind(), strict=True)
        ]
        mixed = torch.zeros_like(tokens).index_add(0, chosen.flatten(), torch.cat(outputs))
        return mixed.view_as(hidden)


class Block(nn.Module):
    """Attention and experts, each normalised before and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(WIDTH), CausalAttention(WIDTH, HEADS)
        self.experts_norm, self.experts = nn.LayerNorm(WIDTH), ExpertLayer()

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        return hidden + self.experts(self.experts_norm(hidden))


class MixtureOfExperts(nn.Module):
    """Token ids `[batch length]` to logits `[batch length vocabulary]`; the embedding is tied to the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(MAX_LENGTH, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))
