"""MobileNetV2 (Sandler et al. 2018, table 2) for 224 x 224 images: 3,504,872 parameters, 300 M multiply-adds an image."""

from __future__ import annotations

from torch import nn

from datasets.build.inverted_residual import InvertedResidual, InvertedResiduals, Style

STEM, HEAD = 32, 1280
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks, stride of the first block."""


def mobilenet_v2(classes: int = 1000) -> InvertedResiduals:
    """The module: `[batch 3 height width]` to `[batch classes]`."""
    style, blocks, before = Style(nn.ReLU6), [], STEM
    for expansion, after, count, stride in STAGES:
        for i in range(count):
            blocks.append(InvertedResidual(before, after, expansion, 3, stride if i == 0 else 1, style))
            before = after
    return InvertedResiduals(STEM, blocks, (before, HEAD), style, classes)
