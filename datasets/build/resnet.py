"""Residual networks for 224 x 224 images: ResNet (He et al. 2016, table 1), ResNeXt (Xie et al. 2017, table 1), Wide ResNet.

A block's stride is that of its first 3 x 3 convolution, as the networks that people use have it (the paper's bottlenecks stride in the
1 x 1 convolution before it, see `tensorflow_resnet`). ResNet-18 has 11,689,512 parameters, ResNet-50 25,557,032, ResNet-101 44,549,160,
ResNeXt-50 32 x 4d 25,028,904; Wide ResNet-50-2 (Zagoruyko and Komodakis 2016, table 8), twice as wide within bottlenecks, 68,883,240.

Networks for segmentation and detection build on the stages without the classifier: these may keep their resolution and dilate their
convolutions instead (DeepLab), and batch norm may be frozen: its statistics and parameters are constants of the trained network.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

STEM, STAGE = 64, 64  # channels of the stem; narrow ones of the first stage, doubled by each stage after it
WIDENING = 4


@dataclass(frozen=True)
class Sizes:
    """Of one network of the family; `width` is that of each group of a bottleneck's 3 x 3 convolution in the first stage."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool = True
    groups: int = 1
    width: int = STAGE


RESNET_18 = Sizes((2, 2, 2, 2), bottleneck=False)
RESNET_50 = Sizes((3, 4, 6, 3))
RESNET_101 = Sizes((3, 4, 23, 3))
RESNEXT_50 = Sizes((3, 4, 6, 3), groups=32, width=4)
WIDE_RESNET_50 = Sizes((3, 4, 6, 3), width=128)


class FrozenNorm(nn.Module):
    """Batch norm as a fixed scale and shift of each channel of `[batch channels height width]`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, value in (("weight", 1.0), ("bias", 0.0), ("mean", 0.0), ("variance", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, image: Tensor) -> Tensor:
        return functional.batch_norm(image, self.mean, self.variance, self.weight, self.bias)


class Convolution(nn.Module):
    """A convolution without bias and its norm; the resolution changes by the stride alone."""

    def __init__(
        self, before: int, after: int, window: int = 1, stride: int = 1, *, groups: int = 1, dilation: int = 1,
        norm: type[nn.Module] = nn.BatchNorm2d,
    ) -> None:  # fmt: skip
        super().__init__()
        self.conv = nn.Conv2d(before, after, window, stride, dilation * (window // 2), dilation, groups, bias=False)
        self.norm = norm(after)

    def forward(self, image: Tensor) -> Tensor:
        return self.norm(self.conv(image))


class Block(nn.Module):
    """Two or three convolutions whose sum with the input, projected where that has another shape, is rectified."""

    def __init__(self, before: int, convolutions: list[Convolution], stride: int, norm: type[nn.Module]) -> None:
        super().__init__()
        self.convolutions, after = nn.ModuleList(convolutions), convolutions[-1].conv.out_channels
        same = (before, 1) == (after, stride)
        self.projection = nn.Identity() if same else Convolution(before, after, stride=stride, norm=norm)

    def forward(self, image: Tensor) -> Tensor:
        *inner, last = self.convolutions
        hidden = image
        for convolution in inner:
            hidden = torch.relu(convolution(hidden))
        return torch.relu(last(hidden) + self.projection(image))


class Stages(nn.Module):
    """A residual network without its classifier.

    `dilations` of the stages: one that is larger than the stage's before takes the place of the stride, and the stage's first block
    keeps the dilation before.
    """

    def __init__(
        self, sizes: Sizes = RESNET_50, dilations: tuple[int, int, int, int] = (1, 1, 1, 1), norm: type[nn.Module] = nn.BatchNorm2d
    ) -> None:
        super().__init__()
        self.stem, self.pool = Convolution(3, STEM, 7, 2, norm=norm), nn.MaxPool2d(3, stride=2, padding=1)
        self.blocks, self.channels, self._counts, before = nn.ModuleList(), list[int](), sizes.blocks, STEM
        for stage, (count, dilation) in enumerate(zip(sizes.blocks, dilations, strict=True)):
            last = dilations[stage - 1] if stage > 0 else dilation
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 and dilation == last else 1
                dilated = last if index == 0 else dilation
                convolutions = _convolutions(before, 2**stage, sizes, stride, dilated, norm)
                self.blocks.append(Block(before, convolutions, stride, norm))
                before = convolutions[-1].conv.out_channels
            self.channels.append(before)

    def stages(self, image: Tensor) -> list[Tensor]:
        """Images `[batch 3 height width]` to the output of each stage, `[batch channels ...]`."""
        hidden, outputs, done = self.pool(torch.relu(self.stem(image))), [], 0
        for count in self._counts:
            for block in self.blocks[done : done + count]:
                hidden = block(hidden)
            outputs.append(hidden)
            done += count
        return outputs


class Backbone(Stages):
    """Images `[batch 3 height width]` to the output of each stage."""

    def forward(self, image: Tensor) -> list[Tensor]:
        return self.stages(image)


class ResNet(Stages):
    """Images `[batch 3 height width]` to logits `[batch classes]`."""

    def __init__(self, sizes: Sizes = RESNET_50, classes: int = 1000) -> None:
        super().__init__(sizes)
        self.out = nn.Linear(self.channels[-1], classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.out(self.stages(image)[-1].mean(dim=(2, 3)))


def _convolutions(before: int, scale: int, sizes: Sizes, stride: int, dilation: int, norm: type[nn.Module]) -> list[Convolution]:
    """Of one block; `scale` is how many times as many channels its stage has as the first."""
    narrow = STAGE * scale
    if not sizes.bottleneck:
        first = Convolution(before, narrow, 3, stride, dilation=dilation, norm=norm)
        return [first, Convolution(narrow, narrow, 3, dilation=dilation, norm=norm)]
    inner, wide = sizes.groups * sizes.width * scale, WIDENING * narrow
    across = Convolution(inner, inner, 3, stride, groups=sizes.groups, dilation=dilation, norm=norm)
    return [Convolution(before, inner, norm=norm), across, Convolution(inner, wide, norm=norm)]
