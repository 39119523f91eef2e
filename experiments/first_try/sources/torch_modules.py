"""Every entry of PyTorch's own database of modules, `SAMPLES` of its samples each, spread over the database's."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin
from torch.testing._internal.common_modules import module_db

from experiments.first_try.cases import Kind, TorchCase
from experiments.first_try.sources.calls import called, named, trainable

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
    if any(isinstance(parameter, UninitializedTensorMixin) for parameter in module.parameters()):
        called(module, inputs)  # as PyTorch wants it of lazy modules before an optimiser is built
    return TorchCase(trainable(module) if kind == "training" else module, inputs)


def _samples(entry: Any, kind: Kind) -> list[Any]:
    torch.manual_seed(0)
    training = kind == "training"
    samples = entry.module_inputs_func(entry, device="cpu", dtype=torch.float32, requires_grad=False, training=training)
    return [sample for sample in samples if sample.forward_input is not None]
