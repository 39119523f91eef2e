"""Conformer (Gulati et al. 2020, section 2 and table 1): convolution and attention in each layer, over spectrograms of 80 mel frequencies.

Two convolutions of stride 2, then layers of half a feed-forward part, attention with relative positions (Transformer-XL's), a convolution
part (gated, depthwise over 32 frames, batch norm) and the other half feed-forward; dropout 0.1 at the end of each part and within the feed-
forward ones. With a linear layer for 1,024 word pieces the encoders of M (16 layers of width 256) and L (17 of 512) have 27,512,832 and
115,348,480 parameters; the paper's 30.7 M and 118.8 M include an LSTM as the decoder of a transducer. The loss is a cross entropy of every
frame, as no cost rule knows the transducer's recursion. Convolutions of a layer have no bias, which the paper leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import join_heads, split_heads
from datasets.build.transformer_xl import shifted

MELS, CLASSES, DROPOUT, LONGEST_WAVE = 80, 1024, 0.1, 10_000.0


@dataclass(frozen=True)
class Sizes:
    """Of the model; `window` is that of the depthwise convolutions, in frames."""

    width: int
    heads: int
    layers: int
    window: int = 32


MEDIUM = Sizes(width=256, heads=4, layers=16)
LARGE = Sizes(width=512, heads=8, layers=17)


def frames(samples: int) -> int:
    """What the two convolutions of stride 2 leave of so many frames, or of so many frequencies."""
    for _ in range(2):
        samples = (samples - 3) // 2 + 1
    return samples


def distances(length: int, width: int) -> Tensor:
    """The sinusoid of each distance from `length - 1` down to `1 - length`, `[2*length-1 width]`."""
    frequencies = LONGEST_WAVE ** (-torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length - 1, -length, -1), frequencies)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Subsampling(nn.Module):
    """Spectrograms `[batch 80 frames]` to `[batch frames/4 width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(1, width, 3, stride=2), nn.Conv2d(width, width, 3, stride=2)
        self.linear, self.dropout = nn.Linear(width * frames(MELS), width), nn.Dropout(DROPOUT)

    def forward(self, spectrogram: Tensor) -> Tensor:
        hidden = torch.relu(self.conv_2(torch.relu(self.conv_1(spectrogram[:, None]))))
        return self.dropout(self.linear(hidden.flatten(1, 2).transpose(1, 2)))


class FeedForward(nn.Module):
    """Two products around SiLU ("Swish"), four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.dropout(self.down(self.dropout(functional.silu(self.up(self.norm(hidden))))))


class Attention(nn.Module):
    """Attention by content and by distance, with a learned bias for each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.dropout = heads, nn.LayerNorm(width), nn.Dropout(DROPOUT)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.distance = nn.Linear(width, width, bias=False)
        self.content_bias, self.distance_bias = (nn.Parameter(torch.zeros(heads, width // heads)) for _ in range(2))

    def forward(self, hidden: Tensor, waves: Tensor) -> Tensor:
        """`waves` are the distances `[2*frames-1 width]`."""
        seen = self.norm(hidden)
        query, key, value = (split_heads(part, self.heads) for part in (self.query(seen), self.key(seen), self.value(seen)))
        far = self.distance(waves).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)
        content = (query + self.content_bias[:, None]) @ key.transpose(2, 3)
        position = shifted((query + self.distance_bias[:, None]) @ far)[..., : key.shape[2]]
        weights = ((content + position) * query.shape[-1] ** -0.5).softmax(dim=-1)
        return self.dropout(self.out(join_heads(weights @ value)))


class Convolution(nn.Module):
    """A gate for each channel and frame, a convolution over near frames channel by channel, and a product."""

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.norm, self.widen = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1, bias=False)
        self.around, self.depthwise = ((window - 1) // 2, window // 2), nn.Conv1d(width, width, window, groups=width, bias=False)
        self.batch_norm, self.narrow = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1, bias=False)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        gated = functional.glu(self.widen(self.norm(hidden).transpose(1, 2)), dim=1)
        mixed = self.narrow(functional.silu(self.batch_norm(self.depthwise(functional.pad(gated, self.around)))))
        return self.dropout(mixed.transpose(1, 2))


class Block(nn.Module):
    """The four parts, each added to its input; normalised at the end, `[batch frames width]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.before, self.attention = FeedForward(width), Attention(width, sizes.heads)
        self.convolution, self.after, self.norm = Convolution(width, sizes.window), FeedForward(width), nn.LayerNorm(width)

    def forward(self, hidden: Tensor, waves: Tensor) -> Tensor:
        hidden = hidden + self.before(hidden) / 2
        hidden = hidden + self.attention(hidden, waves)
        hidden = hidden + self.convolution(hidden)
        return self.norm(hidden + self.after(hidden) / 2)


class Conformer(nn.Module):
    """Spectrograms `[batch 80 frames]` to the logits of every fourth frame, `[batch frames/4 classes]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.subsampling = Subsampling(sizes.width)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.width, CLASSES)

    def forward(self, spectrogram: Tensor) -> Tensor:
        hidden = self.subsampling(spectrogram)
        waves = distances(hidden.shape[1], hidden.shape[2])
        for layer in self.layers:
            hidden = layer(hidden, waves)
        return self.head(hidden)
