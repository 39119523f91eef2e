"""Training steps for the checks: small ones that a core runs in milliseconds, large ones that keep a GPU busy for tens of them.

Attention is written out: what PyTorch's fused attention becomes in a trace for CPUs has no kernel on GPUs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnplace.frontends.torch.step import TorchStep

NAMES = ("two_towers", "attention", "convolution")


class TwoTowers(nn.Module):
    """Two chains of layers that meet in a product."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(*(part for _ in range(depth) for part in (nn.Linear(width, width), nn.Tanh()))) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.towers[0](x) * self.towers[1](x.flip(1))


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        split = self.qkv(self.first(x)).view(samples, length, 3, self._heads, width // self._heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(2, 3) * (width // self._heads) ** -0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(samples, length, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


class Convolution(nn.Module):
    """Two convolution branches with batch norms, added."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.branches = nn.ModuleList(nn.Sequential(*(self._layer(channels) for _ in range(depth))) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return (self.branches[0](x) + self.branches[1](x)).mean((2, 3))

    @staticmethod
    def _layer(channels: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())


def square(module: nn.Module, x: Tensor) -> Tensor:
    """A loss of nothing but the output."""
    return module(x).square().mean()


def two_towers() -> TorchStep:
    return TorchStep(TwoTowers(256, 3), square, (torch.randn(128, 256),))


def two_towers_large() -> TorchStep:
    return TorchStep(TwoTowers(4096, 4), square, (torch.randn(4096, 4096),))


def attention() -> TorchStep:
    return TorchStep(nn.Sequential(*(Block(64, 4) for _ in range(2))), square, (torch.randn(4, 64, 64),))


def attention_large() -> TorchStep:
    return TorchStep(nn.Sequential(*(Block(1024, 16) for _ in range(8))), square, (torch.randn(16, 512, 1024),))


def convolution() -> TorchStep:
    return TorchStep(Convolution(8, 2), square, (torch.randn(4, 3, 24, 24),), "sgd")


def convolution_large() -> TorchStep:
    return TorchStep(Convolution(128, 5), square, (torch.randn(64, 3, 64, 64),), "sgd")
