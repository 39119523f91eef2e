"""The Vision Transformer (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", section 3.1 and table 1), written from the paper.

A class token and 16 x 16 patches of 224 x 224 images; dropout 0.1 as for its training on ImageNet (appendix B.1), after every dense layer
but those of queries, keys and values and after the positions. With a linear classifier of 1,000 classes, Base (12 layers of width 768)
has 86,567,656 parameters (86 M in the table) and Large (24 of 1024) 304,326,632 (307 M in the table), as transformers' implementation has.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from datasets.build.attention import Block

DROPOUT, CHANNELS = 0.1, 3


@dataclass(frozen=True)
class Sizes:
    """Of the model and its images."""

    image: int = 224
    patch: int = 16
    width: int = 768
    heads: int = 12
    layers: int = 12
    classes: int = 1000


BASE = Sizes()
LARGE = Sizes(width=1024, heads=16, layers=24)


class Patches(nn.Module):
    """Images `[batch 3 height width]` to a class token and one token a patch, with their positions, `[batch tokens width]`."""

    def __init__(self, image: int, patch: int, width: int, bias: bool) -> None:
        super().__init__()
        self.projection = nn.Conv2d(CHANNELS, width, patch, stride=patch, bias=bias)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.projection(images).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(patches), -1, -1), patches], dim=1) + self.position


class ViT(nn.Module):
    """Images `[batch 3 height width]` to logits `[batch classes]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.patches, self.dropout = Patches(sizes.image, sizes.patch, sizes.width, bias=True), nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(Block(sizes.width, sizes.heads, nn.GELU(), dropout=DROPOUT) for _ in range(sizes.layers))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.classes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.dropout(self.patches(images))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden)[:, 0])
