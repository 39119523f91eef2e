"""Training steps of several micro-batches, of networks without batch normalisation and dropout, and their pipelines."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from support.small_networks import Attends
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

import gnnplace as gp

MICRO_BATCHES = 4
CLIPS = {"mixer": {"clip_norm": 0.5, "clip_value": 0.05}}  # both bind


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(16), inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


def mlp() -> nn.Module:
    blocks = [Residual(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))) for _ in range(6)]
    return nn.Sequential(nn.Linear(8, 16), *blocks, nn.Linear(16, 5))


def attention() -> nn.Module:
    heads = [Attends() for _ in range(4)]
    for each in heads:
        each.mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    return nn.Sequential(nn.Linear(16, 16), *map(Residual, heads), nn.Flatten(), nn.Linear(96, 5))


def convolutions() -> nn.Module:
    layers = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU()) for _ in range(5)]
    return nn.Sequential(nn.Conv2d(3, 8, 3), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


class MixesPlaces(nn.Linear):
    """Its gradient of what it receives is a view."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2).contiguous()


def mixer() -> nn.Module:
    return nn.Sequential(*(MixesPlaces(6, 6) for _ in range(8)), nn.Flatten(), nn.Linear(96, 5))


STEPS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (8, 8)), "attention": (attention, (8, 6, 16)), "convolutions": (convolutions, (8, 3, 10, 10)),
    "mixer": (mixer, (8, 6, 16)),
}  # fmt: skip


def step(name: str) -> gp.TorchStep:
    """A step from seed 0."""
    torch.manual_seed(0)
    build, shape = STEPS[name]
    net = build()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)  # Adam divides by gradients near 0
    inputs = torch.randn(*shape), torch.arange(shape[0]) % 5
    loss, clips = lambda net, x, y: cross_entropy(net(x), y), CLIPS.get(name, {})
    return gp.TorchStep(net, loss, inputs, optimizer, micro_batches=MICRO_BATCHES, **clips)


def accumulated(name: str) -> tuple[list[float], dict[str, Tensor]]:
    """The losses of micro-batches, whose gradients are summed on one device, and the updated parameters."""
    of, losses = step(name), []
    for tensors in of.batch.split(of.batch.tensors):
        losses.append(of.loss_of(of.module, tensors))
        losses[-1].backward()
    for parameter in of.module.parameters():
        assert parameter.grad is not None
        parameter.grad /= MICRO_BATCHES
    if name in CLIPS:
        assert nn.utils.clip_grad_norm_(of.module.parameters(), of.clip_norm) > of.clip_norm
        assert max(parameter.grad.abs().max() for parameter in of.module.parameters()) > of.clip_value
        nn.utils.clip_grad_value_(of.module.parameters(), of.clip_value)
    of.built_optimizers[0].step()
    return [each.item() for each in losses], dict(of.module.named_parameters())


def trained(rank: int, name: str, folders: Sequence[Path], store: str, world: int) -> None:
    """One process of the exported steps: trains one of each, and saves losses and updated parameters in its folder."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=600))
    for folder in folders:
        of = step(name)
        losses = runpy.run_path(str(folder / "run.py"))["train"](of, 1, torch.device("cpu"))
        fresh, updated = dict(step(name).module.named_parameters()), {key: _whole(each) for key, each in of.module.named_parameters()}
        torch.save((losses, {key: each for key, each in updated.items() if not torch.equal(each, fresh[key])}), folder / f"{rank}.pt")
        distributed.barrier()
    distributed.destroy_process_group()


def _whole(parameter: Tensor) -> Tensor:
    return (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach().clone()
