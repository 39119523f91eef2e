"""EfficientNet-B0 (Tan & Le 2019, table 1) for 224 x 224 images: 5,288,548 parameters, 0.39 billion multiply-adds an image.

Squeeze and excitation by a quarter of a block's input channels; SiLU; stochastic depth that grows along the blocks to 0.2, as published.
"""

from __future__ import annotations

from torch import nn

from datasets.build.inverted_residual import InvertedResidual, InvertedResiduals, Style

STEM, HEAD, SQUEEZED, LEFT_OUT = 32, 1280, 0.25, 0.2
STAGES = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1),
)  # fmt: skip
"""Expansion, window, stride of the first block, channels, blocks."""


def efficientnet_b0(classes: int = 1000) -> InvertedResiduals:
    """The module: `[batch 3 height width]` to `[batch classes]`."""
    style, before = Style(nn.SiLU, SQUEEZED), STEM
    blocks: list[InvertedResidual] = []
    total = sum(stage[-1] for stage in STAGES)
    for expansion, window, stride, after, count in STAGES:
        for i in range(count):
            kept = 1 - LEFT_OUT * len(blocks) / total
            blocks.append(InvertedResidual(before, after, expansion, window, stride if i == 0 else 1, style, kept))
            before = after
    return InvertedResiduals(STEM, blocks, (before, HEAD), style, classes)
