"""PointNet (Qi et al. 2017) for the classes of ModelNet40: 1,024 points, 3.5 M parameters, 440 M multiply-adds (table 6).

Perceptrons shared by all points, the maximum over the points, a perceptron. Before the first and before the third layer a small network of
the same sort computes a matrix, by which all points (or their 64 features) are multiplied; the loss keeps the larger one near an orthogonal
one. Batch norm and ReLU after all but the last layers; dropout 0.3 before the last (appendix C). Ours: 3,480,049 parameters.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

POINT_WIDTHS, HEAD_WIDTHS, FEATURES, CLASSES = (128, 1024), (1024, 512, 256), 64, 40
DROPOUT, ORTHOGONAL = 0.3, 0.001


def shared(*widths: int) -> nn.Sequential:
    """A perceptron over each point of `[batch width points]`."""
    parts = [(nn.Conv1d(before, after, 1), nn.BatchNorm1d(after), nn.ReLU()) for before, after in pairwise(widths)]
    return nn.Sequential(*(layer for part in parts for layer in part))


def perceptron(*widths: int) -> nn.Sequential:
    """A perceptron over `[batch width]`."""
    parts = [(nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()) for before, after in pairwise(widths)]
    return nn.Sequential(*(layer for part in parts for layer in part))


class Transform(nn.Module):
    """Points `[batch width points]` to the matrix `[batch width width]` that they are multiplied by; at first the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.points, self.head = shared(width, FEATURES, *POINT_WIDTHS), perceptron(*HEAD_WIDTHS)
        self.out = nn.Linear(HEAD_WIDTHS[-1], width * width)
        nn.init.zeros_(self.out.weight)
        with torch.no_grad():
            self.out.bias.copy_(torch.eye(width).flatten())

    def forward(self, points: Tensor) -> Tensor:
        pooled = self.points(points).max(dim=2).values
        return self.out(self.head(pooled)).view(-1, self.width, self.width)


class PointNet(nn.Module):
    """Points `[batch 3 points]` to logits `[batch classes]` and the matrix of the features `[batch 64 64]`."""

    def __init__(self) -> None:
        super().__init__()
        first, second = shared(3, FEATURES, FEATURES), shared(FEATURES, FEATURES, *POINT_WIDTHS)
        head = nn.Sequential(perceptron(*HEAD_WIDTHS), nn.Dropout(DROPOUT), nn.Linear(HEAD_WIDTHS[-1], CLASSES))
        self.stages = nn.ModuleList([Transform(3), first, Transform(FEATURES), second, head])

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        turn_points, first, turn_features, second, head = self.stages
        features = first(torch.bmm(turn_points(points), points))
        matrix = turn_features(features)
        pooled = second(torch.bmm(matrix, features)).max(dim=2).values
        return head(pooled), matrix


def loss(module: nn.Module, points: Tensor, classes: Tensor) -> Tensor:
    """Cross entropy, and how far the matrices of the features are from orthogonal."""
    logits, matrix = module(points)
    distance = torch.bmm(matrix, matrix.transpose(1, 2)) - torch.eye(FEATURES)
    return functional.cross_entropy(logits, classes) + ORTHOGONAL * distance.square().sum(dim=(1, 2)).mean()
