"""Small training steps for tests of executors: two branches, tied weights with a batch norm, dropout, a sparse table, attention."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.cluster import Device
from gnnplace.execution.workload import Plan
from gnnplace.frontends.torch_step import TorchStep
from gnnplace.graph import ComputationGraph
from gnnplace.transforms.units import colocation_closure


class TwoBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(12, 16), nn.ReLU(inplace=True), nn.Linear(16, 8))
        self.right = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) * self.right(x.flip(1))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 10)
        self.norm = nn.BatchNorm1d(10)

    def forward(self, indices: Tensor) -> Tensor:
        return self.norm(self.table(indices)) @ self.table.weight.T


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.Dropout(0.5), nn.Linear(16, 16), nn.Dropout(0.3), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 8, sparse=True)
        self.out = nn.Linear(8, 5)

    def forward(self, indices: Tensor) -> Tensor:
        return self.out(self.table(indices).sum(1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return x + self.out(torch.softmax(q @ k.transpose(1, 2) / 4, dim=-1) @ v)


def square(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).square().mean()


def classes(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(module(x), y)


def step(name: str) -> TorchStep:
    """A step by name, with seeded values."""
    torch.manual_seed(0)
    match name:
        case "two branches":
            return TorchStep(TwoBranches(), square, (torch.randn(6, 12),))
        case "tied":
            return TorchStep(Tied(), classes, (torch.randint(20, (9,)), torch.randint(20, (9,))))
        case "dropout":
            return TorchStep(Dropped(), square, (torch.randn(6, 12),))
        case "sparse":
            return TorchStep(Sparse(), classes, (torch.randint(30, (7, 3)), torch.randint(5, (7,))), "sgd")
        case "attention":
            return TorchStep(Attention(), square, (torch.randn(2, 5, 16),))
        case _:
            raise ValueError(name)


NAMES = ("two branches", "tied", "dropout", "sparse", "attention")


def two_branches() -> TorchStep:
    """As `gnnplace measure FILE.py:two_branches` finds it."""
    return step("two branches")


def devices(*kinds: str) -> tuple[Device, ...]:
    """Devices of these kinds, a GiB each."""
    return tuple(Device(f"{kind}:{place}", kind, 2**30, 10**9, 10**9) for place, kind in enumerate(kinds))


def spread(graph: ComputationGraph, on: tuple[Device, ...], seed: int) -> Plan:
    """Colocation groups on devices at random, in the graph's own order."""
    generator, groups = np.random.default_rng(seed), colocation_closure(graph)
    drawn = generator.integers(len(on), size=graph.num_ops).astype(np.int32)
    return Plan(on, drawn[groups], graph.order)
