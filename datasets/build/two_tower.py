"""A two-tower retrieval model: users and items are embedded apart and meet in one product (Covington 2016, Yi et al. 2019).

Each tower embeds its categorical features, widens each by a small network of its own, and runs a cross network
(Wang et al. 2021, DCN-v2) beside a deep one: parallel branches within each of two parallel towers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

CROSS_LAYERS = 3
TEMPERATURE = 0.05


@dataclass(frozen=True)
class Sizes:
    """Of the model; `num_features` are those of a user and of an item."""

    num_features: tuple[int, int] = (6, 4)
    rows: int = 50_000
    feature_width: int = 64
    widened: int = 256
    deep_widths: tuple[int, ...] = (2048, 2048, 1024)
    output_width: int = 256


FULL = Sizes()


class Feature(nn.Module):
    """One categorical feature: its embedding table and its own two-layer network."""

    def __init__(self, rows: int, width: int, widened: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.widen = nn.Sequential(nn.Linear(width, 4 * widened), nn.ReLU(), nn.Linear(4 * widened, widened))

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

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.LayerNorm(b)) for a, b in pairwise(widths)))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.layers(hidden)


class Tower(nn.Module):
    """Feature ids `[batch features]` to unit vectors `[batch width]`."""

    def __init__(self, num_features: int, sizes: Sizes) -> None:
        super().__init__()
        width = num_features * sizes.widened
        self.features = nn.ModuleList(Feature(sizes.rows, sizes.feature_width, sizes.widened) for _ in range(num_features))
        self.cross = CrossNetwork(width)
        self.deep = DeepNetwork((width, *sizes.deep_widths))
        self.out = nn.Linear(width + sizes.deep_widths[-1], sizes.output_width)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.cat([feature(column) for feature, column in zip(self.features, ids.unbind(dim=1), strict=True)], dim=1)
        return functional.normalize(self.out(torch.cat([self.cross(hidden), self.deep(hidden)], dim=1)))


class TwoTower(nn.Module):
    """User and item ids to the scores `[batch batch]` of every user with every item of the batch."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.user, self.item = (Tower(features, sizes) for features in sizes.num_features)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return self.user(user) @ self.item(item).t() / TEMPERATURE
