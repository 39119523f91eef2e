"""Inverted residuals: the block of MobileNetV2 (Sandler et al. 2018) and, with squeeze and excitation, of EfficientNet.

A 1 x 1 convolution widens, a depthwise one mixes positions, a 1 x 1 convolution without activation narrows again; the input is added where
the shape is the same. Batch norm after each. Squeeze and excitation (Hu et al. 2018) scales each channel by its share in the whole image.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from datasets.build.stochastic_depth import StochasticDepth


@dataclass(frozen=True)
class Style:
    """What the blocks of one model have in common."""

    activation: type[nn.Module]
    squeezed: float | None = None
    """Channels of the squeeze, as a share of the block's input."""


class Convolution(nn.Sequential):
    """A convolution, batch norm and maybe an activation; depthwise where there are as many groups as channels."""

    def __init__(
        self, before: int, after: int, window: int = 1, stride: int = 1, groups: int = 1, activation: type[nn.Module] | None = None
    ) -> None:
        conv = nn.Conv2d(before, after, window, stride, window // 2, groups=groups, bias=False)
        parts = OrderedDict[str, nn.Module](conv=conv, norm=nn.BatchNorm2d(after))
        super().__init__(parts | ({"activation": activation()} if activation else {}))


class SqueezeExcitation(nn.Module):
    """Scales each channel by a gate, computed from the means of all channels."""

    def __init__(self, channels: int, squeezed: int, activation: type[nn.Module] = nn.SiLU) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation = activation()

    def forward(self, image: Tensor) -> Tensor:
        gate = self.expand(self.activation(self.reduce(image.mean(dim=(2, 3), keepdim=True))))
        return image * torch.sigmoid(gate)


class InvertedResidual(nn.Module):
    """`[batch before height width]` to `[batch after height/stride width/stride]`, by way of `expansion` times as many channels."""

    def __init__(self, before: int, after: int, expansion: int, window: int, stride: int, style: Style, kept: float = 1.0) -> None:
        super().__init__()
        wide = before * expansion
        self.expand = nn.Identity() if expansion == 1 else Convolution(before, wide, activation=style.activation)
        self.depthwise = Convolution(wide, wide, window, stride, groups=wide, activation=style.activation)
        self.squeeze = SqueezeExcitation(wide, int(before * style.squeezed)) if style.squeezed else nn.Identity()
        self.project = Convolution(wide, after)
        self.residual = StochasticDepth(kept) if stride == 1 and before == after else None

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.project(self.squeeze(self.depthwise(self.expand(image))))
        return hidden if self.residual is None else image + self.residual(hidden)


class InvertedResiduals(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`: a stem, the blocks, a wide 1 x 1 convolution, a linear layer."""

    def __init__(self, stem: int, blocks: list[InvertedResidual], widths: tuple[int, int], style: Style, classes: int) -> None:
        super().__init__()
        last, head = widths
        self.stem = Convolution(3, stem, 3, 2, activation=style.activation)
        self.blocks = nn.ModuleList(blocks)
        self.head = Convolution(last, head, activation=style.activation)
        self.dropout, self.out = nn.Dropout(0.2), nn.Linear(head, classes)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.stem(image)
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(self.dropout(self.head(hidden).mean(dim=(2, 3))))
