"""Llama (Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", section 2.2 and table 2), written from the paper.

RMS norm (op by op, as in the authors' code) before each part, rotary positions (Su et al. 2021), SwiGLU (Shazeer 2020), no biases. 7B:
32 layers of width 4096, 6.7 B parameters (6,738,415,616). The small size is TinyLlama's (Zhang et al. 2024, section 2.2): 22 layers of
width 2048 whose 32 heads share 4 heads of keys and values (Ainslie et al. 2023), 1.1 B parameters (1,100,048,384).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import join_heads, split_heads

EPSILON, ROTARY_BASE = 1e-5, 10_000.0


@dataclass(frozen=True)
class Sizes:
    """Of the model; `key_heads` are the heads of keys and values."""

    vocabulary: int = 32_000
    max_length: int = 2048
    width: int = 4096
    heads: int = 32
    key_heads: int = 32
    layers: int = 32
    inner: int = 11_008


SEVEN = Sizes()
ONE = Sizes(width=2048, key_heads=4, layers=22, inner=5632)


class Rotary(nn.Module):
    """The waves that turn a query or a key by its position: cosines and sines, `[length head width]`."""

    def __init__(self, head_width: int, max_length: int) -> None:
        super().__init__()
        frequencies = ROTARY_BASE ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(max_length), torch.cat([frequencies, frequencies]))
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, length: int) -> tuple[Tensor, Tensor]:
        return self.cosine[:length], self.sine[:length]


def turned(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Element i of each head and element i + half of it, turned as a pair."""
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat([-second, first], dim=-1) * sine


class Attention(nn.Module):
    """Self-attention of each position to those before it; runs of heads share their keys and values."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads, self.key_heads = sizes.heads, sizes.key_heads
        key_width = sizes.width // sizes.heads * sizes.key_heads
        self.query = nn.Linear(sizes.width, sizes.width, bias=False)
        self.key = nn.Linear(sizes.width, key_width, bias=False)
        self.value = nn.Linear(sizes.width, key_width, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        query = turned(split_heads(self.query(hidden), self.heads), cosine, sine)
        key = self._for_all(turned(split_heads(self.key(hidden), self.key_heads), cosine, sine))
        value = self._for_all(split_heads(self.value(hidden), self.key_heads))
        return self.out(join_heads(functional.scaled_dot_product_attention(query, key, value, is_causal=True)))

    def _for_all(self, shared: Tensor) -> Tensor:
        """Each head of keys or values, once for every head of queries that uses it."""
        times = self.heads // self.key_heads
        return shared if times == 1 else shared[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2)


class FeedForward(nn.Module):
    """SwiGLU: one product gates the other."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added to its input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(sizes.width, EPSILON), Attention(sizes)
        self.mlp_norm, self.mlp = nn.RMSNorm(sizes.width, EPSILON), FeedForward(sizes.width, sizes.inner)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), cosine, sine)
        return hidden + self.mlp(self.mlp_norm(hidden))


class Llama(nn.Module):
    """Token ids `[batch length]` to logits `[batch length vocabulary]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.rotary = Rotary(sizes.width // sizes.heads, sizes.max_length)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, EPSILON)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, (cosine, sine) = self.embedding(tokens), self.rotary(tokens.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
        return self.head(self.norm(hidden))
