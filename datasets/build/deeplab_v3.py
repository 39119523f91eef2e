"""DeepLabv3 (Chen et al. 2017, sections 3 and 4) with ResNet-50: the class of each pixel, 21 classes of PASCAL VOC.

The last stage of the backbone dilates its convolutions, so that the output stride is 16 on crops of 513 x 513. Atrous spatial pyramid
pooling: a 1 x 1 convolution, three 3 x 3 ones with rates 6, 12 and 18 and the mean of the whole image, side by side, 256 channels each.
All convolutions of the last stage have one rate (no "multi-grid", section 3.2.2), and a 3 x 3 convolution comes before the last one, as in
torchvision's network: 39,638,869 parameters, its 42,004,074 without the auxiliary classifier (2,365,205).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.resnet import Backbone, Convolution

WIDTH, RATES, CLASSES, CROP, DROPOUT = 256, (6, 12, 18), 21, 513, 0.5


class Pyramid(nn.Module):
    """Convolutions of several rates and the mean of the image, side by side, then mixed: `[batch before height width]`, 256 channels."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.point = Convolution(before, WIDTH)
        self.dilated = nn.ModuleDict({f"rate_{rate}": Convolution(before, WIDTH, 3, dilation=rate) for rate in RATES})
        self.whole = Convolution(before, WIDTH)
        self.mix, self.dropout = Convolution((2 + len(RATES)) * WIDTH, WIDTH), nn.Dropout(DROPOUT)

    def forward(self, image: Tensor) -> Tensor:
        whole = torch.relu(self.whole(image.mean(dim=(2, 3), keepdim=True)))
        branches = [torch.relu(branch(image)) for branch in (self.point, *self.dilated.values())]
        joined = torch.cat([*branches, whole.expand_as(branches[0])], dim=1)
        return self.dropout(torch.relu(self.mix(joined)))


class DeepLab(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes height width]`."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(dilations=(1, 1, 1, 2))
        self.pyramid = Pyramid(self.backbone.channels[-1])
        self.conv, self.out = Convolution(WIDTH, WIDTH, 3), nn.Conv2d(WIDTH, CLASSES, 1)

    def forward(self, image: Tensor) -> Tensor:
        logits = self.out(torch.relu(self.conv(self.pyramid(self.backbone(image)[-1]))))
        return functional.interpolate(logits, size=image.shape[2:], mode="bilinear", align_corners=False)
