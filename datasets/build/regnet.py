"""RegNetY (Radosavovic et al. 2020, "Designing Network Design Spaces", sections 3 and 5) for 224 x 224 images.

The widths of the blocks lie on a line that is quantised to powers of a factor (equations 2 to 4) and rounded to whole groups, so that
runs of blocks of one width are the stages. A block is a 1 x 1, a grouped 3 x 3 and a 1 x 1 convolution with squeeze and excitation by a
quarter of the channels that it is given, added to its input. RegNetY-400MF has 4,344,144 parameters and 0.40 billion multiply-adds an
image, RegNetY-8GF 39,180,068 and 7.96 billion (4.3 M and 39.2 M, 0.4 and 8.0 billion in the paper's tables).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from datasets.build.inverted_residual import Convolution, SqueezeExcitation

STEM, QUANTUM = 32, 8


@dataclass(frozen=True)
class Sizes:
    """The parameters of the design space: blocks, the line `initial + slope * block`, the factor between widths, channels of a group."""

    depth: int
    initial: int
    slope: float
    factor: float
    group: int

    @property
    def widths(self) -> tuple[int, ...]:
        """Of each block."""
        power = np.round(np.log((self.initial + self.slope * np.arange(self.depth)) / self.initial) / np.log(self.factor))
        quantised = np.round(self.initial * self.factor**power / QUANTUM) * QUANTUM
        return tuple((np.round(quantised / self.group) * self.group).astype(int).tolist())


SMALL = Sizes(depth=16, initial=48, slope=27.89, factor=2.09, group=8)  # 400 MF
LARGE = Sizes(depth=17, initial=192, slope=76.82, factor=2.19, group=56)  # 8 GF


class Block(nn.Module):
    """`[batch before height width]` to `[batch after height/stride width/stride]`."""

    def __init__(self, before: int, after: int, group: int, stride: int) -> None:
        super().__init__()
        self.conv_1 = Convolution(before, after, activation=nn.ReLU)
        self.conv_2 = Convolution(after, after, 3, stride, after // group, nn.ReLU)
        self.squeeze, self.conv_3 = SqueezeExcitation(after, round(before / 4), nn.ReLU), Convolution(after, after)
        self.skip = nn.Identity() if stride == 1 and before == after else Convolution(before, after, 1, stride)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.skip(image) + self.conv_3(self.squeeze(self.conv_2(self.conv_1(image)))))


class RegNet(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`; the resolution is halved where the width grows."""

    def __init__(self, sizes: Sizes, classes: int = 1000) -> None:
        super().__init__()
        self.stem, self.layers, before = Convolution(3, STEM, 3, 2, activation=nn.ReLU), nn.ModuleList(), STEM
        for after in sizes.widths:
            self.layers.append(Block(before, after, sizes.group, 1 if before == after else 2))
            before = after
        self.out = nn.Linear(before, classes)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.stem(image)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden.mean(dim=(2, 3)))
