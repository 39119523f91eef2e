"""GPT-2 (Radford et al. 2019) at its smallest size, 124 M parameters, with the published names of its parts.

Attention and the tanh approximation of GELU are one kernel each, as in today's training code; so there is no dropout on
the attention's scores. Op by op, the step needs three times the memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, MAX_LENGTH, WIDTH, HEADS, LAYERS, DROPOUT = 50_257, 1024, 768, 12, 12, 0.1


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

    def __init__(self) -> None:
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.c_proj(self.act(self.c_fc(hidden)))


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(WIDTH), CausalAttention(WIDTH, HEADS)
        self.ln_2, self.mlp = nn.LayerNorm(WIDTH), FeedForward()
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.drop(self.attn(self.ln_1(hidden)))
        return hidden + self.drop(self.mlp(self.ln_2(hidden)))


class GPT2(nn.Module):
    """Token ids `[batch length]` to logits `[batch length vocabulary]`; the embedding is tied to the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(MAX_LENGTH, WIDTH)
        self.drop = nn.Dropout(DROPOUT)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        for block in self.h:
            hidden = block(hidden)
        return self.lm_head(self.ln_f(hidden))
