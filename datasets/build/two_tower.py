"""A two-tower retrieval model: users and items are embedded apart and meet in one product (Covington 2016, Yi et al. 2019).

Each tower embeds its categorical features, widens each by a small network of its own, and runs a cross network
(Wang et al. 2021, DCN-v2) beside a deep one: parallel branches within each of two parallel towers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

NUM_FEATURES = (6, 4)  # of a user, of an item
ROWS, FEATURE_WIDTH, WIDENED, OUTPUT_WIDTH = 50_000, 64, 256, 256
DEEP_WIDTHS = (2048, 2048, 1024)
CROSS_LAYERS = 3
TEMPERATURE = 0.05


class Feature(nn.Module):
    """One categorical feature: its embedding table and its own two-layer network."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, FEATURE_WIDTH)
        self.widen = nn.Sequential(nn.Linear(FEATURE_WIDTH, 4 * WIDENED), nn.ReLU(), nn.Linear(4 * WIDENED, WIDENED))

    def forward(self, ids: Tensor) -> Tensor:
        return self.widen(self.table(ids))


class CrossNetwork(nn.Module):
    """`x <- x0 * (W x + b) + x`, layer by layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(CROSS_LAYERS))

    def forward(self, first: Tensor) -> Tensor:
        crossed = first
        for layer in self.layers:
            crossed = first * layer(crossed) + crossed
        return crossed


class DeepNetwork(nn.Module):
    """Linear layers with ReLU and layer normalisation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = (width, *DEEP_WIDTHS)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.LayerNorm(b)) for a, b in zip(widths, DEEP_WIDTHS, strict=False))
        )

    def forward(self, hidden: Tensor) -> Tensor:
        return self.layers(hidden)


class Tower(nn.Module):
    """Feature ids `[batch features]` to unit vectors `[batch width]`."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.features = nn.ModuleList(Feature() for _ in range(num_features))
        self.cross = CrossNetwork(num_features * WIDENED)
        self.deep = DeepNetwork(num_features * WIDENED)
        self.out = nn.Linear(num_features * WIDENED + DEEP_WIDTHS[-1], OUTPUT_WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.cat([feature(column) for feature, column in zip(self.features, ids.unbind(dim=1), strict=True)], dim=1)
        return functional.normalize(self.out(torch.cat([self.cross(hidden), self.deep(hidden)], dim=1)))


class TwoTower(nn.Module):
    """User and item ids to the scores `[batch batch]` of every user with every item of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = (Tower(features) for features in NUM_FEATURES)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.user(user) @ self.item(item).t() / TEMPERATURE
