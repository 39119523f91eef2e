"""Swin-T (Liu et al. 2021, "Swin Transformer", section 3) for 224 x 224 images: 28,288,354 parameters, 4.5 billion multiply-adds an image.

Attention within windows of 7 x 7 positions with a learned bias for each relative position; every other layer shifts the image by half a
window, wraps it around and hides positions that were no neighbours before (figure 4). Between the stages, 2 x 2 positions are merged. Op by
op, as published; stochastic depth grows along the layers to 0.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from datasets.build.attention import join_heads, split_heads
from datasets.build.mlp_mixer import Perceptron
from datasets.build.stochastic_depth import StochasticDepth

IMAGE, PATCH, WINDOW, HEAD_WIDTH, WIDENED, LEFT_OUT, HIDDEN = 224, 4, 7, 32, 4, 0.2, -100.0
WIDTHS, LAYERS = (96, 192, 384, 768), (2, 2, 6, 2)


def windows(image: Tensor) -> Tensor:
    """`[batch height width channels]` to `[batch*windows positions channels]`."""
    parts = image.unflatten(2, (-1, WINDOW)).unflatten(1, (-1, WINDOW)).transpose(2, 3)
    return parts.flatten(3, 4).flatten(0, 2)


def joined(parts: Tensor, size: int) -> Tensor:
    """The inverse of `windows`, for images of this height and width."""
    across = size // WINDOW
    return parts.unflatten(1, (WINDOW, WINDOW)).unflatten(0, (-1, across, across)).transpose(2, 3).flatten(3, 4).flatten(1, 2)


def relative_positions() -> Tensor:
    """The row of the table of biases for each pair of positions in a window, `[positions*positions]`."""
    rows, columns = torch.arange(WINDOW).repeat_interleave(WINDOW), torch.arange(WINDOW).repeat(WINDOW)
    down, right = (place[:, None] - place[None, :] + WINDOW - 1 for place in (rows, columns))
    return (down * (2 * WINDOW - 1) + right).flatten()


def hidden_pairs(size: int, shift: int) -> Tensor:
    """What is added to the scores of a shifted image, `[windows 1 positions positions]`: pairs that the wrap made neighbours are hidden."""
    wrapped = (torch.arange(size) >= size - shift).long()
    part = windows((2 * wrapped[:, None] + wrapped[None, :])[None, :, :, None]).squeeze(2)
    return (part[:, None, :, None] != part[:, None, None, :]) * HIDDEN


class WindowAttention(nn.Module):
    """Attention within each window, `[batch*windows positions width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros((2 * WINDOW - 1) ** 2, self.heads))
        self.register_buffer("places", relative_positions())

    def forward(self, hidden: Tensor, hides: Tensor | None) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(hidden).chunk(3, dim=-1))
        bias = self.bias[self.places].view(WINDOW**2, WINDOW**2, self.heads).permute(2, 0, 1)
        scores = (query * HEAD_WIDTH**-0.5) @ key.transpose(2, 3) + bias
        if hides is not None:
            scores = (scores.unflatten(0, (-1, len(hides))) + hides).flatten(0, 1)
        return self.out(join_heads(scores.softmax(dim=-1) @ value))


class Layer(nn.Module):
    """Attention in windows and a perceptron, each normalised before and added to its input, `[batch height width channels]`."""

    def __init__(self, width: int, size: int, shifted: bool, kept: float) -> None:
        super().__init__()
        self.size, self.shift = size, WINDOW // 2 if shifted and size > WINDOW else 0
        self.norm_1, self.attention = nn.LayerNorm(width), WindowAttention(width)
        self.norm_2, self.mlp = nn.LayerNorm(width), Perceptron(width, WIDENED * width)
        self.residual = StochasticDepth(kept)
        self.register_buffer("hides", hidden_pairs(size, self.shift) if self.shift else None)

    def forward(self, image: Tensor) -> Tensor:
        hidden, back = self.norm_1(image), (self.shift, self.shift)
        if self.shift:
            hidden = hidden.roll((-self.shift, -self.shift), dims=(1, 2))
        hidden = joined(self.attention(windows(hidden), self.hides), self.size)
        image = image + self.residual(hidden.roll(back, dims=(1, 2)) if self.shift else hidden)
        return image + self.residual(self.mlp(self.norm_2(image)))


class Merging(nn.Module):
    """2 x 2 positions to one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        corners = [image[:, row::2, column::2] for column in range(2) for row in range(2)]
        return self.reduce(self.norm(torch.cat(corners, dim=-1)))


class Swin(nn.Module):
    """Images `[batch 3 224 224]` to logits `[batch classes]`."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.patches, self.norm_before = nn.Conv2d(3, WIDTHS[0], PATCH, stride=PATCH), nn.LayerNorm(WIDTHS[0])
        self.layers, size, done = nn.ModuleList(), IMAGE // PATCH, 0
        for stage, (width, count) in enumerate(zip(WIDTHS, LAYERS, strict=True)):
            if stage > 0:
                self.layers.append(Merging(WIDTHS[stage - 1]))
                size //= 2
            kept = [1 - LEFT_OUT * (done + i) / (sum(LAYERS) - 1) for i in range(count)]
            self.layers.extend(Layer(width, size, i % 2 == 1, kept[i]) for i in range(count))
            done += count
        self.norm, self.out = nn.LayerNorm(WIDTHS[-1]), nn.Linear(WIDTHS[-1], classes)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.norm_before(self.patches(image).permute(0, 2, 3, 1))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(self.norm(hidden).mean(dim=(1, 2)))
