"""DenseNet (Huang et al. 2017) for ImageNet: each layer takes what all layers before it in its block have put out.

Growth 32, bottlenecks of four times that, halved channels between the blocks (table 1, "DenseNet-BC"). On 224 x 224 images DenseNet-121
has 7,978,856 parameters and DenseNet-201 20,013,928. Batch norm and ReLU come before each convolution. A dense layer joins its output to
its input, so that the number in the path of a module counts the layers along the depth; transitions count too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

GROWTH, BOTTLENECK, STEM = 32, 4, 64
LAYERS_121, LAYERS_201 = (6, 12, 24, 16), (6, 12, 48, 32)


class DenseLayer(nn.Module):
    """A 1 x 1 and a 3 x 3 convolution, whose channels are appended to those of the input."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.norm_1, self.conv_1 = nn.BatchNorm2d(before), nn.Conv2d(before, BOTTLENECK * GROWTH, 1, bias=False)
        self.norm_2 = nn.BatchNorm2d(BOTTLENECK * GROWTH)
        self.conv_2 = nn.Conv2d(BOTTLENECK * GROWTH, GROWTH, 3, padding=1, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.conv_1(torch.relu(self.norm_1(image)))
        return torch.cat([image, self.conv_2(torch.relu(self.norm_2(hidden)))], dim=1)


class Transition(nn.Module):
    """Half the channels at half the resolution."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.norm, self.conv, self.pool = nn.BatchNorm2d(before), nn.Conv2d(before, before // 2, 1, bias=False), nn.AvgPool2d(2)

    def forward(self, image: Tensor) -> Tensor:
        return self.pool(self.conv(torch.relu(self.norm(image))))


class DenseNet(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`; `layers` is the number of dense layers in each block."""

    def __init__(self, layers: tuple[int, ...] = LAYERS_121, classes: int = 1000) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, STEM, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(STEM)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layers, channels = nn.ModuleList(), STEM
        for block, count in enumerate(layers):
            if block > 0:
                self.layers.append(Transition(channels))
                channels //= 2
            self.layers.extend(DenseLayer(channels + GROWTH * layer) for layer in range(count))
            channels += GROWTH * count
        self.last_norm, self.out = nn.BatchNorm2d(channels), nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.pool(torch.relu(self.norm(self.conv(image))))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(torch.relu(self.last_norm(hidden)).mean(dim=(2, 3)))
