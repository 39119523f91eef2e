"""ShuffleNet V2 1x (Ma et al. 2018, table 5) for 224 x 224 images: 2,278,604 parameters, 145 million multiply-adds
in the products of an image (146 in the paper's table).

A block leaves half of the channels as they are and sends the others through a 1 x 1, a depthwise 3 x 3 and a 1 x 1 convolution; where it
halves the resolution, both branches compute on all channels. The channels of the two are then interleaved ("shuffled").
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from datasets.build.inverted_residual import Convolution

STEM, HEAD = 24, 1024
STAGES = ((116, 4), (232, 8), (464, 4))
"""Channels and blocks; the first block of each stage halves the resolution."""

Activated = partial(Convolution, activation=nn.ReLU)


class Block(nn.Module):
    """`[batch before height width]` to `[batch after height/stride width/stride]`."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        half, given = after // 2, before if stride > 1 else before // 2
        self.other = nn.Sequential(Convolution(given, given, 3, stride, groups=given), Activated(given, half)) if stride > 1 else None
        self.branch = nn.Sequential(Activated(given, half), Convolution(half, half, 3, stride, groups=half), Activated(half, half))

    def forward(self, image: Tensor) -> Tensor:
        kept, computed = image.chunk(2, dim=1) if self.other is None else (self.other(image), image)
        return interleaved(kept, self.branch(computed))


def interleaved(left: Tensor, right: Tensor) -> Tensor:
    """Channels `[batch channels height width]` of the two in turn, `[batch 2*channels height width]`."""
    joined = torch.cat([left, right], dim=1)
    return joined.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


class ShuffleNet(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem, self.pool = Activated(3, STEM, 3, 2), nn.MaxPool2d(3, stride=2, padding=1)
        self.layers, before = nn.ModuleList(), STEM
        for after, count in STAGES:
            self.layers.extend(Block(before if i == 0 else after, after, 2 if i == 0 else 1) for i in range(count))
            before = after
        self.head, self.out = Activated(before, HEAD), nn.Linear(HEAD, classes)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.pool(self.stem(image))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(self.head(hidden).mean(dim=(2, 3)))
