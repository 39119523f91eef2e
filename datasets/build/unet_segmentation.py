"""The U-Net for segmentation (Ronneberger et al. 2015, figure 1): cells and background in microscopic images of 572 x 572.

Pairs of 3 x 3 convolutions without padding, 64 channels at first and twice as many after each max pool, up again by 2 x 2 transposed
convolutions; each level takes what the way down had there, cropped. Dropout at the end of the way down (section 3.1). The output is 388 x
388; the loss weighs each pixel (equation 1). 31,030,658 parameters. The U-Net of diffusion models descends from this one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS, CLASSES, IMAGE, OUTPUT, DROPOUT = (64, 128, 256, 512, 1024), 2, 572, 388, 0.5


class Pair(nn.Module):
    """Two convolutions: `[batch before height width]` to `[batch after height-4 width-4]`."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(before, after, 3), nn.Conv2d(after, after, 3)

    def forward(self, image: Tensor) -> Tensor:
        return torch.relu(self.conv_2(torch.relu(self.conv_1(image))))


class Up(nn.Module):
    """Twice the resolution and half the channels, joined with the middle of what the way down had."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.grow, self.pair = nn.ConvTranspose2d(before, before // 2, 2, stride=2), Pair(before, before // 2)

    def forward(self, image: Tensor, kept: Tensor) -> Tensor:
        grown = self.grow(image)
        top, left = ((there - here) // 2 for there, here in zip(kept.shape[2:], grown.shape[2:], strict=True))
        middle = kept[:, :, top : top + grown.shape[2], left : left + grown.shape[3]]
        return self.pair(torch.cat([middle, grown], dim=1))


class UNet(nn.Module):
    """Images `[batch 1 height width]` to logits `[batch classes ...]` of the pixels in the middle; levels are numbered along the path."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        down = [Pair(before, after) for before, after in zip((1, *widths), widths, strict=False)]
        self.levels = len(down)
        self.layers = nn.ModuleList([*down, *(Up(width) for width in reversed(widths[1:]))])
        self.pool, self.dropout, self.out = nn.MaxPool2d(2), nn.Dropout(DROPOUT), nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, image: Tensor) -> Tensor:
        kept = [self.layers[0](image)]
        for layer in self.layers[1 : self.levels]:
            kept.append(layer(self.pool(kept[-1])))
        image = self.dropout(kept.pop())
        for layer in self.layers[self.levels :]:
            image = layer(image, kept.pop())
        return self.out(image)


def weighted_loss(module: nn.Module, image: Tensor, classes: Tensor, weights: Tensor) -> Tensor:
    """Cross entropy of the pixels' classes, `[batch height width]` as their weights are."""
    return (functional.cross_entropy(module(image), classes, reduction="none") * weights).mean()
