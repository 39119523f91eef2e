"""SqueezeNet 1.0 (Iandola et al. 2016, table 1) for 224 x 224 images: 1,248,424 parameters, 0.82 billion multiply-adds an image.

Fire modules squeeze the channels by 1 x 1 convolutions and expand them by 1 x 1 and 3 x 3 convolutions side by side; no batch norm and no
linear layer: the classes are the means of the last convolution's channels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

STEM, DROPOUT = 96, 0.5


class Widths(NamedTuple):
    """Channels of a fire module: squeezed, and expanded by each of the two windows; `pooled` where a max pool comes before it."""

    squeezed: int
    expanded: int
    pooled: bool = False


FIRES = (
    Widths(16, 64, pooled=True), Widths(16, 64), Widths(32, 128), Widths(32, 128, pooled=True),
    Widths(48, 192), Widths(48, 192), Widths(64, 256), Widths(64, 256, pooled=True),
)  # fmt: skip


class Fire(nn.Module):
    """`[batch before height width]` to `[batch 2*expanded height width]`, or half the resolution where it pools."""

    def __init__(self, before: int, widths: Widths) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True) if widths.pooled else nn.Identity()
        self.squeeze = nn.Conv2d(before, widths.squeezed, 1)
        self.expand_1 = nn.Conv2d(widths.squeezed, widths.expanded, 1)
        self.expand_3 = nn.Conv2d(widths.squeezed, widths.expanded, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        squeezed = torch.relu(self.squeeze(self.pool(image)))
        return torch.cat([torch.relu(self.expand_1(squeezed)), torch.relu(self.expand_3(squeezed))], dim=1)


class SqueezeNet(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem, self.layers, before = nn.Conv2d(3, STEM, 7, stride=2), nn.ModuleList(), STEM
        for widths in FIRES:
            self.layers.append(Fire(before, widths))
            before = 2 * widths.expanded
        self.dropout, self.out = nn.Dropout(DROPOUT), nn.Conv2d(before, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        hidden = torch.relu(self.stem(image))
        for layer in self.layers:
            hidden = layer(hidden)
        return torch.relu(self.out(self.dropout(hidden))).mean(dim=(2, 3))
