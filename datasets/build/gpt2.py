"""GPT-2 (Radford et al. 2019) at its smallest size, 124 M parameters, with the published names of its parts.

Attention and the tanh approximation of GELU are one kernel each, as in today's training code; so there is no dropout on
the attention's scores. Op by op, the step needs three times the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

DROPOUT = 0.1


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    vocabulary: int = 50_257
    max_length: int = 1024
    width: int = 768
    heads: int = 12
    layers: int = 12


FULL = Sizes()


class CausalAttention(nn.Module):
    """Self-attention of each position to those before it; queries, keys and values are one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(hidden).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.c_proj(self.act(self.c_fc(hidden)))


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), CausalAttention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), FeedForward(width)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.drop(self.attn(self.ln_1(hidden)))
        return hidden + self.drop(self.mlp(self.ln_2(hidden)))


class GPT2(nn.Module):
    """Token ids `[batch length]` to logits `[batch length vocabulary]`; the embedding is tied to the last layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.wte = nn.Embedding(sizes.vocabulary, sizes.width)
        self.wpe = nn.Embedding(sizes.max_length, sizes.width)
        self.drop = nn.Dropout(DROPOUT)
        self.h = nn.ModuleList(Block(sizes.width, sizes.heads) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.width)
        self.lm_head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        for block in self.h:
            hidden = block(hidden)
        return self.lm_head(self.ln_f(hidden))
