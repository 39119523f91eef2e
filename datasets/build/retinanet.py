"""RetinaNet (Lin et al. 2017, "Focal Loss for Dense Object Detection") on ResNet-50 with a feature pyramid: boxes of 80 classes of COCO.

Levels 3 to 7 of the pyramid have 256 channels (section 4); level 6 is made from the backbone's last stage. Two subnets of four 3 x 3
convolutions, shared by the levels, give for each of nine anchors a position the logits of the classes and four offsets of a box. Which
anchors match which object is decided before the step, so that all shapes are fixed: the inputs are one-hot classes and offsets for every
anchor and which anchors count. Batch norm is frozen, as in the authors' code, but stem and first stage, frozen there, learn here.
37,915,572 parameters; with 91 classes and level 6 made from level 5 of the pyramid it would have the 34,014,999 of torchvision's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.resnet import Backbone, FrozenNorm

WIDTH, ANCHORS, DEPTH, PRIOR, ALPHA, GAMMA, BETA = 256, 9, 4, 0.01, 0.25, 2, 1 / 9
STRIDES = (8, 16, 32, 64, 128)


def anchors(height: int, width: int) -> int:
    """How many boxes the network looks at in images of this size."""
    return ANCHORS * sum(math.ceil(height / stride) * math.ceil(width / stride) for stride in STRIDES)


class FeaturePyramid(nn.Module):
    """The outputs of the last three of four stages, with so many channels, to the five levels, `[batch 256 height width]` each."""

    def __init__(self, channels: list[int]) -> None:
        super().__init__()
        self.lateral_3, self.lateral_4, self.lateral_5 = (nn.Conv2d(before, WIDTH, 1) for before in channels[1:])
        self.smooth_3, self.smooth_4, self.smooth_5 = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(3))
        self.level_6 = nn.Conv2d(channels[-1], WIDTH, 3, stride=2, padding=1)
        self.level_7 = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)

    def forward(self, third: Tensor, fourth: Tensor, fifth: Tensor) -> list[Tensor]:
        level_5 = self.lateral_5(fifth)
        level_4 = self.lateral_4(fourth) + functional.interpolate(level_5, size=fourth.shape[2:])
        level_3 = self.lateral_3(third) + functional.interpolate(level_4, size=third.shape[2:])
        level_6 = self.level_6(fifth)
        return [self.smooth_3(level_3), self.smooth_4(level_4), self.smooth_5(level_5), level_6, self.level_7(torch.relu(level_6))]


class Subnet(nn.Module):
    """A level `[batch 256 height width]` to so many outputs for each anchor, `[batch anchors outputs]`."""

    def __init__(self, outputs: int, bias: float = 0.0) -> None:
        super().__init__()
        self.convolutions = nn.ModuleDict({f"conv_{depth}": nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for depth in range(DEPTH)})
        self.outputs, self.out = outputs, nn.Conv2d(WIDTH, ANCHORS * outputs, 3, padding=1)
        nn.init.constant_(self.out.bias, bias)

    def forward(self, level: Tensor) -> Tensor:
        for convolution in self.convolutions.values():
            level = torch.relu(convolution(level))
        return self.out(level).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, self.outputs))


class RetinaNet(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch anchors classes]` and offsets `[batch anchors 4]`."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.backbone = Backbone(norm=FrozenNorm)
        self.pyramid = FeaturePyramid(self.backbone.channels)
        self.classes, self.boxes = Subnet(classes, -math.log((1 - PRIOR) / PRIOR)), Subnet(4)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        levels = self.pyramid(*self.backbone(image)[1:])
        logits, offsets = (torch.cat([subnet(level) for level in levels], dim=1) for subnet in (self.classes, self.boxes))
        return logits, offsets


def focal_loss(logits: Tensor, classes: Tensor) -> Tensor:
    """Cross entropy of independent classes, less where the class is found already (section 3.2), for each logit."""
    entropy = functional.binary_cross_entropy_with_logits(logits, classes, reduction="none")
    found = torch.sigmoid(logits)
    missed = found + classes - 2 * found * classes  # 1 - p_t
    return (ALPHA * classes + (1 - ALPHA) * (1 - classes)) * missed**GAMMA * entropy


def loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    """Of classes and boxes, a matched anchor.

    After the images come one-hot classes `[batch anchors classes]`, offsets `[batch anchors 4]`, and, `[batch anchors]`, 1 for each
    anchor that matches an object and 1 for each that matches one or none, so that only the doubtful ones are 0.
    """
    image, classes, offsets, matched, counts = inputs
    logits, found = module(image)
    of_classes = (focal_loss(logits, classes).sum(dim=2) * counts).sum()
    of_boxes = (functional.smooth_l1_loss(found, offsets, reduction="none", beta=BETA).sum(dim=2) * matched).sum()
    return (of_classes + of_boxes) / matched.sum().clamp(min=1)
