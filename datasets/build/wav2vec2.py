"""wav2vec 2.0 Base (Baevski et al. 2020, sections 2, 4.2 and appendix B), fine-tuned to name the letter of every frame.

Seven convolutions of 512 channels turn samples into frames of 20 ms; spans of frames are replaced by a learned vector (an input says
which); a grouped convolution over 128 frames with weight norm gives the positions; 12 layers of width 768, normalised after each part.
Dropout 0.1, but none of the weights of the attention, which is one kernel. 94,371,712 parameters, and 24,608 of the head for 32 letters,
as transformers' implementation has. Unlike in the paper (section 4.3) the convolutions learn, too, as they do before fine-tuning, and the
loss is a cross entropy of every frame (as with labels of a forced alignment), not CTC, whose recursion no cost rule knows; no layer is
left out at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import SelfAttention

CHANNELS, WINDOWS, STRIDES = 512, (10, 3, 3, 3, 3, 2, 2), (5, 2, 2, 2, 2, 2, 2)
NEAR, GROUPS, DROPOUT = 128, 16, 0.1


@dataclass(frozen=True)
class Sizes:
    """Of the transformer and its head."""

    width: int = 768
    heads: int = 12
    inner: int = 3072
    layers: int = 12
    classes: int = 32


BASE = Sizes()


def frames(samples: int) -> int:
    """How many frames the convolutions make of so many samples."""
    for window, stride in zip(WINDOWS, STRIDES, strict=True):
        samples = (samples - window) // stride + 1
    return samples


class Convolution(nn.Module):
    """`[batch before samples]` to `[batch 512 samples/stride]`; the first one normalises each channel over the whole recording."""

    def __init__(self, before: int, window: int, stride: int, first: bool) -> None:
        super().__init__()
        self.conv = nn.Conv1d(before, CHANNELS, window, stride, bias=False)
        self.norm = nn.GroupNorm(CHANNELS, CHANNELS) if first else nn.Identity()

    def forward(self, audio: Tensor) -> Tensor:
        return functional.gelu(self.norm(self.conv(audio)))


class Positions(nn.Module):
    """What is added to frames `[batch frames width]`: a convolution over those near them, its weight a direction and a length a place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(width, width // GROUPS, NEAR) / NEAR)
        self.length, self.bias = nn.Parameter(torch.ones(1, 1, NEAR)), nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor) -> Tensor:
        weight = self.length * self.direction / torch.linalg.vector_norm(self.direction, dim=(0, 1), keepdim=True)
        near = functional.conv1d(hidden.transpose(1, 2), weight, self.bias, padding=NEAR // 2, groups=GROUPS)
        return functional.gelu(near[:, :, :-1]).transpose(1, 2)


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and normalised after."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention, self.norm_1 = SelfAttention(sizes.width, sizes.heads, causal=False), nn.LayerNorm(sizes.width)
        self.up, self.down = nn.Linear(sizes.width, sizes.inner), nn.Linear(sizes.inner, sizes.width)
        self.norm_2, self.dropout = nn.LayerNorm(sizes.width), nn.Dropout(DROPOUT)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.norm_1(hidden + self.dropout(self.attention(hidden)))
        return self.norm_2(hidden + self.dropout(self.down(self.dropout(functional.gelu(self.up(hidden))))))


class Wav2Vec2(nn.Module):
    """Audio `[batch samples]` and which frames are hidden, `[batch frames]`, to logits `[batch frames classes]`.

    The transformer's layers are numbered after the convolutions: they follow them in the row of layers.
    """

    def __init__(self, sizes: Sizes = BASE) -> None:
        super().__init__()
        width, before, depth = sizes.width, (1, *[CHANNELS] * (len(WINDOWS) - 1)), len(WINDOWS)
        self.features = nn.Sequential(*(Convolution(before[i], WINDOWS[i], STRIDES[i], i == 0) for i in range(depth)))
        self.norm_before, self.projection = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, width)
        self.hidden_frame, self.positions = nn.Parameter(torch.rand(width)), Positions(width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(DROPOUT)
        self.layers = nn.ModuleDict({str(depth + i): Block(sizes) for i in range(sizes.layers)})
        self.head = nn.Linear(width, sizes.classes)

    def forward(self, audio: Tensor, hides: Tensor) -> Tensor:
        seen = self.features(audio[:, None]).transpose(1, 2)
        hidden = self.dropout(self.projection(self.norm_before(seen)))
        hidden = torch.where(hides[:, :, None], self.hidden_frame, hidden)
        hidden = self.dropout(self.norm(hidden + self.positions(hidden)))
        for layer in self.layers.values():
            hidden = layer(hidden)
        return self.head(self.dropout(hidden))
