"""Every entry of PyTorch's own database of modules, `SAMPLES` of its samples each, spread over the database's."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

from experiments.first_try.cases import Kind, TorchCase
from experiments.first_try.sources.calls import named

KINDS = ("inference", "training")
SAMPLES = 3


@cache
def names() -> list[str]:
    """The samples by module and number."""
    counts = {entry.name: len(_samples(entry, "training")) for entry in module_db}
    return [
        f"{name} {number}"
        for name, count in counts.items()
        for number in dict.fromkeys(count * part // SAMPLES for part in range(SAMPLES) if count)
    ]


def case(name: str, kind: Kind) -> TorchCase:
    """A module with the inputs of a sample."""
    label, _, number = name.rpartition(" ")
    entry = next(entry for entry in module_db if entry.name == label)
    torch.manual_seed(0)
    sample = _samples(entry, kind)[int(number)]
    module = entry.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    module, inputs = named(module, sample.forward_input.args, sample.forward_input.kwargs)
    bare = kind == "training" and not [*module.parameters()]
    return TorchCase(Scaled(module) if bare else module, inputs)


class Scaled(nn.Module):
    """A module without parameters behind one, so that a training step computes its gradient."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.scale = inner, nn.Parameter(torch.ones(()))

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        return self.inner(*pytree.tree_map(self._scaled, inputs), **pytree.tree_map(self._scaled, keywords))

    def _scaled(self, value: Any) -> Any:
        return value * self.scale if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _samples(entry: Any, kind: Kind) -> list[Any]:
    torch.manual_seed(0)
    training = kind == "training"
    samples = entry.module_inputs_func(entry, device="cpu", dtype=torch.float32, requires_grad=False, training=training)
    return [sample for sample in samples if sample.forward_input is not None]
