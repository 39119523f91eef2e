"""Whisper (Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision", section 2.2 and table 1): speech to text.

Two convolutions over 80 mel frequencies, the second of stride 2, turn 30 s into 1,500 positions with fixed sinusoids; encoder and decoder
normalise first, keys have no bias, the table of tokens is the output's, too. No dropout. Base (6 + 6 layers of width 512) has 71,825,920
parameters and Small (12 + 12 of 768) 240,582,912; transformers counts the sinusoids as well: 72,593,920 and 241,734,912. The decoder's
layers are numbered after the encoder's: they follow them in the row of layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import join_heads, split_heads

MELS, LONGEST_WAVE = 80, 10_000.0


@dataclass(frozen=True)
class Sizes:
    """Of the model; `layers` each of the encoder and of the decoder; `positions` after the convolutions, `length` of the text."""

    width: int = 512
    heads: int = 8
    layers: int = 6
    vocabulary: int = 51_865
    positions: int = 1500
    length: int = 448


BASE = Sizes()
SMALL = Sizes(width=768, heads=12, layers=12)


def sinusoids(positions: int, width: int) -> Tensor:
    """Of each position, `[positions width]`: waves of 1 to 10,000 positions a radian, sines first."""
    frequencies = torch.exp(-math.log(LONGEST_WAVE) / (width // 2 - 1) * torch.arange(width // 2))
    angles = torch.outer(torch.arange(positions), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Attention(nn.Module):
    """Attention of a sequence to another or to itself, normalised before and added to its input."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal, self.norm = heads, causal, nn.LayerNorm(width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, hidden: Tensor, other: Tensor | None = None) -> Tensor:
        seen = self.norm(hidden)
        other = seen if other is None else other
        query, key, value = (split_heads(part, self.heads) for part in (self.query(seen), self.key(other), self.value(other)))
        return hidden + self.out(join_heads(functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)))


class Block(nn.Module):
    """Self-attention, in the decoder attention to the encoder's output, and two products around GELU."""

    def __init__(self, width: int, heads: int, decodes: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal=decodes)
        self.cross = Attention(width, heads) if decodes else None
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, encoded: Tensor | None = None) -> Tensor:
        hidden = self.attention(hidden)
        hidden = hidden if self.cross is None else self.cross(hidden, encoded)
        return hidden + self.down(functional.gelu(self.up(self.norm(hidden))))


class Encoder(nn.Module):
    """Mel spectrograms `[batch 80 frames]` to `[batch frames/2 width]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.conv_1 = nn.Conv1d(MELS, width, 3, padding=1)
        self.conv_2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("position", sinusoids(sizes.positions, width))
        self.layers = nn.ModuleList(Block(width, sizes.heads, decodes=False) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, spectrogram: Tensor) -> Tensor:
        hidden = functional.gelu(self.conv_2(functional.gelu(self.conv_1(spectrogram))))
        hidden = hidden.transpose(1, 2) + self.position
        for layer in self.layers:
            hidden = layer(hidden)
        return self.norm(hidden)


class Decoder(nn.Module):
    """Token ids `[batch length]` and the encoder's output to the logits of the next tokens `[batch length vocabulary]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.position = nn.Parameter(torch.zeros(sizes.length, sizes.width))
        self.layers = nn.ModuleDict({str(sizes.layers + i): Block(sizes.width, sizes.heads, decodes=True) for i in range(sizes.layers)})
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, encoded: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.position[: tokens.shape[1]]
        for layer in self.layers.values():
            hidden = layer(hidden, encoded)
        return self.head(self.norm(hidden))


class Whisper(nn.Module):
    """Mel spectrograms `[batch 80 frames]` and token ids `[batch length]` to logits `[batch length vocabulary]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(sizes), Decoder(sizes)

    def forward(self, spectrogram: Tensor, tokens: Tensor) -> Tensor:
        return self.decoder(tokens, self.encoder(spectrogram))
