"""A module's call with other tensors in place of its own, after which it has its own again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def called_with(tensors: dict[str, Tensor], module: nn.Module, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What the module returns with these parameters and buffers; afterwards `tensors` are those that it has put in their places.

    PyTorch's own (2.13) leaves them in a module that has two names: it takes what it put there by the first for what was there.

    >>> import torch
    >>> pair = nn.Sequential(linear := nn.Linear(1, 1), linear)
    >>> called = called_with({"0.weight": torch.zeros(1, 1)}, pair, (torch.ones(1),), {})
    >>> torch.equal(called, linear.bias), isinstance(linear.weight, nn.Parameter)
    (True, True)
    """
    before = [(part, dict(part._parameters), dict(part._buffers)) for part in module.modules()]
    given, own = dict(tensors), {id(tensor) for _, parameters, buffers in before for tensor in (*parameters.values(), *buffers.values())}
    try:
        return functional_call(module, given, tuple(positional), dict(named))
    finally:
        tensors.update({name: tensor for name, tensor in given.items() if id(tensor) not in own})
        for part, parameters, buffers in before:
            part._parameters.update(parameters)
            part._buffers.update(buffers)
