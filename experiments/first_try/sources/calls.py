"""A module with inputs as steps take them: positional or named ones; and with a parameter, if it has none."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from experiments.first_try.cases import Inputs


class Spread(nn.Module):
    """A module called with all positional inputs and a dict of named ones."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        return self.inner(*positional, **keywords)


def named(module: nn.Module, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[nn.Module, Inputs]:
    """The module and its inputs: as they are if there is one sort, by the names of its signature if there are both."""
    if not keywords:
        return module, tuple(positional)
    if not positional:
        return module, dict(keywords)
    parameters = [*inspect.signature(module.forward).parameters.values()][: len(positional)]
    if any(parameter.kind is not parameter.POSITIONAL_OR_KEYWORD for parameter in parameters):
        return Spread(module), (tuple(positional), dict(keywords))
    return module, {parameter.name: value for parameter, value in zip(parameters, positional, strict=True)} | dict(keywords)


class Scaled(nn.Module):
    """A module without parameters behind one, so that a training step computes its gradient."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.scale = inner, nn.Parameter(torch.ones(()))

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        return self.inner(*pytree.tree_map(self._scaled, inputs), **pytree.tree_map(self._scaled, keywords))

    def _scaled(self, value: Any) -> Any:
        return value * self.scale if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def called(module: nn.Module, inputs: Inputs) -> Any:
    """The module's output for its inputs."""
    return module(**inputs) if isinstance(inputs, dict) else module(*inputs)


def trainable(module: nn.Module) -> nn.Module:
    """The module, or one with a parameter around it."""
    return module if any(parameter.requires_grad for parameter in module.parameters()) else Scaled(module)
