"""Small PyTorch modules for inference, which exports convert for other runtimes, and random placements of what they become."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.units import expand, units


class Towers(nn.Module):
    """Two towers on one stem, whose product is added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 16)
        self.deep = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.wide, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.norm(x + self.deep(x) * torch.sigmoid(self.wide(x)))


class Attends(nn.Module):
    """Attention of two heads, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.mlp = nn.Linear(16, 48), nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, dim=-1) @ v
        return self.mlp(x + self.out(mixed.transpose(1, 2).flatten(2)))


def convolutions() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=4)]
    return nn.Sequential(*layers, nn.Sigmoid(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (convolutions, (2, 3, 16, 16)),
    "towers": (Towers, (4, 16)),
    "attends": (Attends, (2, 6, 16)),
}


def network(name: str) -> tuple[nn.Module, Tensor]:
    """A network of `NETWORKS` for inference, with parameters from seed 0, and its input."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    return build().eval(), torch.randn(*shape)


def scattered(problem: Problem, seed: int) -> Placement:
    """Every colocation group on a random device."""
    groups = units(problem.graph, "ops")
    drawn = np.random.default_rng(seed).integers(problem.num_devices, size=groups.num_units).astype(np.int32)
    return Placement(expand(groups, drawn))
