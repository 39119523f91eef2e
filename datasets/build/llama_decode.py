"""One step of decoding with Llama: the next token of several texts, whose keys and values lie in a cache.

The cache has room for `max_length` tokens and is full after this step, so every query sees all of it; the new key and value are written
in place, as in static caches. The queries of the heads that share a key are rows of one attention, so no key is copied.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build import llama
from datasets.build.attention import split_heads


class Attention(llama.Attention):
    """Attention of one token `[batch 1 width]` to what the cache holds, itself included: keys and values `[batch heads room head]`."""

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor, cache: tuple[Tensor, Tensor], place: Tensor) -> Tensor:
        query = llama.turned(split_heads(self.query(hidden), self.heads), cosine, sine)
        key = llama.turned(split_heads(self.key(hidden), self.key_heads), cosine, sine)
        keys, values = cache
        keys.index_copy_(2, place, key)
        values.index_copy_(2, place, split_heads(self.value(hidden), self.key_heads))
        grouped = query.flatten(1).unflatten(1, (self.key_heads, self.heads // self.key_heads, -1))
        return self.out(functional.scaled_dot_product_attention(grouped, keys, values).flatten(1)[:, None])


class Block(llama.Block):
    """Attention to the cache and feed-forward, each normalised before and added to its input."""

    def __init__(self, sizes: llama.Sizes) -> None:
        super().__init__(sizes)
        self.attention = Attention(sizes)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor, cache: tuple[Tensor, Tensor], place: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden), cosine, sine, cache, place)
        return hidden + self.mlp(self.mlp_norm(hidden))


class Decoder(llama.Llama):
    """Token ids `[batch 1]`, their place `[1]` and the caches, keys and values of each layer, to logits `[batch 1 vocabulary]`."""

    def __init__(self, sizes: llama.Sizes) -> None:
        super().__init__(sizes)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))

    def forward(self, tokens: Tensor, place: Tensor, *caches: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        cosine, sine = self.rotary.cosine.index_select(0, place), self.rotary.sine.index_select(0, place)
        for layer, keys, values in zip(self.layers, caches[::2], caches[1::2], strict=True):
            hidden = layer(hidden, cosine, sine, (keys, values), place)
        return self.head(self.norm(hidden))


def caches(sizes: llama.Sizes, batch: int) -> list[Tensor]:
    """Keys and values of every layer, of as many tokens as the model takes."""
    shape = (batch, sizes.key_heads, sizes.max_length, sizes.width // sizes.heads)
    return [torch.rand(shape) for _ in range(2 * sizes.layers)]
