"""Steps that are placed and trained in a loop of the test's own, beside plain PyTorch in the same loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gnnplace as gp
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.units.units import expand, units

Optimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def mlp() -> gp.TorchStep:
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    return gp.TorchStep(net, lambda net, x, y: cross_entropy(net(x), y), (torch.zeros(8, 6), torch.zeros(8, dtype=torch.int64)))


def convolutions() -> gp.TorchStep:
    """Batch norm, whose statistics a step changes."""
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 6, 2),
        nn.BatchNorm2d(6),
        nn.Flatten(),
        nn.Linear(24, 4),
    )
    return gp.TorchStep(net, lambda net, x, y: cross_entropy(net(x), y), (torch.zeros(5, 3, 8, 8), torch.zeros(5, dtype=torch.int64)))


class Transformer(nn.Module):
    """Tied embeddings, two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2))
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def transformer() -> gp.TorchStep:
    ids = torch.zeros(3, 5, dtype=torch.int64)
    return gp.TorchStep(Transformer(), lambda net, x, y: cross_entropy(net(x).flatten(0, 1), y.flatten()), (ids, ids))


def like(example: Tensor) -> Tensor:
    """Other values of the same type: classes are below 4."""
    return torch.randint(4, example.shape) if example.dtype == torch.int64 else torch.randn(example.shape)


def batches(step: gp.TorchStep, count: int) -> list[tuple[Tensor, ...]]:
    return [tuple(map(like, step.inputs)) for _ in range(count)]


def cluster(*kinds: str) -> Cluster:
    """Devices of these kinds, a GiB each, all linked."""
    devices = tuple(Device(f"{kind}:{place}", kind, 2**30, 10**9, 10**9) for place, kind in enumerate(kinds))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    return Cluster("here", devices, links)


def split(step: gp.TorchStep | gp.TorchInference, *kinds: str, seed: int = 0) -> gp.Plan:
    """A plan of the step whose colocation groups stand on devices at random."""
    problem = gp.problem(step, cluster(*(kinds or ("cpu", "cpu"))))
    closed = units(problem.graph, "ops")
    drawn = np.random.default_rng(seed).integers(problem.num_devices, size=closed.num_units).astype(np.int32)
    return gp.Plan.of(problem, gp.Placement(expand(closed, drawn)))


def train(
    module: nn.Module, call: Callable[..., Tensor], optimizer: Optimizer, data: Sequence[tuple[Tensor, ...]], most: float = 0.5
) -> list[float]:
    """A loop with a scheduler and clipped gradients; the losses."""
    made, losses = optimizer(module.parameters()), []
    scheduler = torch.optim.lr_scheduler.StepLR(made, 2, gamma=0.5)
    for batch in data:
        made.zero_grad()
        loss = call(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), most)
        made.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def plain(step: gp.TorchStep) -> tuple[nn.Module, Callable[..., Tensor]]:
    """A copy of the step's module, and its loss as a call."""
    net = copy.deepcopy(step.module)
    return net, lambda *batch: step.loss(net, *batch)
