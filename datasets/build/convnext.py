"""ConvNeXt-T (Liu et al. 2022, section 2 and table 9) for 224 x 224 images: 28,589,128 parameters, 4.5 billion multiply-adds an image.

A block is a depthwise 7 x 7 convolution, layer norm over the channels and two linear layers with GELU between them, scaled channel by
channel and added to its input; stochastic depth grows along the blocks to 0.1, as published for this size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.stochastic_depth import StochasticDepth

WIDTHS, BLOCKS = (96, 192, 384, 768), (3, 3, 9, 3)
WIDENED, LEFT_OUT, SCALE, EPSILON = 4, 0.1, 1e-6, 1e-6


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of `[batch channels height width]`."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=EPSILON)

    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """Positions are mixed channel by channel, then channels position by position."""

    def __init__(self, width: int, kept: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.widen, self.narrow = nn.Linear(width, WIDENED * width), nn.Linear(WIDENED * width, width)
        self.scale, self.residual = nn.Parameter(SCALE * torch.ones(width)), StochasticDepth(kept)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.norm(self.conv(image).permute(0, 2, 3, 1))
        hidden = self.scale * self.narrow(functional.gelu(self.widen(hidden)))
        return image + self.residual(hidden.permute(0, 3, 1, 2))


class ConvNeXt(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Conv2d(3, WIDTHS[0], 4, stride=4), ChannelNorm(WIDTHS[0]))])
        done = 0
        for stage, (width, count) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
            if stage > 0:
                before = WIDTHS[stage - 1]
                self.layers.append(nn.Sequential(ChannelNorm(before), nn.Conv2d(before, width, 2, stride=2)))
            self.layers.extend(Block(width, 1 - LEFT_OUT * (done + i) / (sum(BLOCKS) - 1)) for i in range(count))
            done += count
        self.norm, self.out = nn.LayerNorm(WIDTHS[-1], eps=EPSILON), nn.Linear(WIDTHS[-1], classes)

    def forward(self, image: Tensor) -> Tensor:
        for layer in self.layers:
            image = layer(image)
        return self.out(self.norm(image.mean(dim=(2, 3))))
