"""Inception-V3 (Szegedy et al. 2016) for 299 x 299 images: 23,834,568 parameters, 27,161,264 with the auxiliary head.

Every convolution is without bias and followed by batch norm (with scale, epsilon 0.001) and ReLU. No dropout: the paper's tables name
none. The auxiliary head has part in training alone. Averages over 3 x 3 windows count the padding. The stem is block 0, the mixed
modules are blocks 1 to 11.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from datasets.build.inception_layers import AUXILIARY, MIXED, STEM

SIZE = 299
AUXILIARY_WEIGHT = 0.4


class Convolution(nn.Module):
    """A convolution, batch norm, ReLU."""

    def __init__(self, before: int, after: int, window: tuple[int, int], stride: int, padded: bool) -> None:
        super().__init__()
        padding = (window[0] // 2, window[1] // 2) if padded else 0
        self.conv = nn.Conv2d(before, after, window, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(after, eps=1e-3)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(image)))


class Joined(nn.ModuleList):
    """Branches side by side, joined along the channels."""

    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([branch(image) for branch in self], dim=1)


class Auxiliary(nn.Module):
    """A classifier of the image half-way, `[batch 768 17 17]` to `[batch classes]`."""

    def __init__(self, before: int, classes: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(5, stride=3)
        self.narrow, self.whole = Convolution(before, 128, (1, 1), 1, False), Convolution(128, 768, (5, 5), 1, False)
        self.out = nn.Linear(768, classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.out(self.whole(self.narrow(self.pool(image))).mean(dim=(2, 3)))


class InceptionV3(nn.Module):
    """Images `[batch 3 299 299]` to logits `[batch classes]`; in training with those of the auxiliary head, if there is one."""

    def __init__(self, classes: int = 1000, auxiliary: bool = True) -> None:
        super().__init__()
        stem, channels = _branch(3, STEM)
        self.blocks = nn.ModuleList([stem])
        self.auxiliary = None
        for index, branches in enumerate(MIXED):
            built = [_branch(channels, layers) for layers in branches]
            self.blocks.append(Joined(module for module, _ in built))
            channels = sum(after for _, after in built)
            if auxiliary and index == AUXILIARY:
                self.auxiliary = Auxiliary(channels, classes)
        self.out = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        hidden, early = image, None
        for index, block in enumerate(self.blocks):
            hidden = block(hidden)
            if index == 1 + AUXILIARY and self.auxiliary is not None and self.training:
                early = self.auxiliary(hidden)
        logits = self.out(hidden.mean(dim=(2, 3)))
        return logits if early is None else (logits, early)


def _branch(before: int, layers: Sequence[str]) -> tuple[nn.Sequential, int]:
    """The layers of a branch, and its channels."""
    built = nn.Sequential()
    for layer in layers:
        module, before = _layer(before, layer)
        built.append(module)
    return built, before


def _layer(before: int, layer: str) -> tuple[nn.Module, int]:
    """A layer of `inception_layers`, and its channels."""
    if " | " in layer:
        sides = [_layer(before, side) for side in layer.split(" | ")]
        return Joined(module for module, _ in sides), sum(after for _, after in sides)
    stride = 2 if layer.endswith("/2") else 1
    if layer.startswith("max"):
        return nn.MaxPool2d(3, stride), before
    if layer.startswith("avg"):
        return nn.AvgPool2d(3, stride, padding=1), before
    after, window = layer.split()[:2]
    height, width = map(int, window.removesuffix("/2").split("x"))
    padded = stride == 1 and not layer.endswith("valid")
    return Convolution(before, int(after), (height, width), stride, padded), int(after)
