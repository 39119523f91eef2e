"""Positional and named inputs of a module as one of both, as steps take them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

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
