"""Every optimiser of PyTorch's own database in every setting of it, on a small network."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_optimizers import _get_optim_inputs_including_global_cliquey_kwargs, optim_db

from experiments.first_try.cases import Kind, TorchCase

KINDS = ("training",)


def names() -> list[str]:
    """The settings by class and number."""
    return [f"{cls} {number}" for cls, settings in _settings().items() for number in range(len(settings))]


def case(name: str, kind: Kind) -> TorchCase:
    """A network with such an optimiser: a sparse table for one of sparse gradients, matrices alone for Muon."""
    label, _, number = name.rpartition(" ")
    cls, settings = getattr(torch.optim, label), _settings()[label][int(number)]
    torch.manual_seed(0)
    if label == "SparseAdam":
        return TorchCase(nn.Embedding(8, 4, sparse=True), (torch.arange(3),), optimizer=lambda p: cls(p, **settings))
    net = nn.Sequential(nn.Linear(8, 16, bias=label != "Muon"), nn.Tanh(), nn.Linear(16, 4, bias=False))
    return TorchCase(net, (torch.randn(3, 8),), optimizer=lambda parameters: cls(parameters, **settings))


@cache
def _settings() -> dict[str, list[dict[str, Any]]]:
    return {
        entry.optim_cls.__name__: [
            setting.kwargs for setting in _get_optim_inputs_including_global_cliquey_kwargs("cpu", torch.float32, entry)
        ]
        for entry in optim_db
    }
