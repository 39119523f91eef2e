"""An input of the sweep: a module with example inputs, or an ONNX model with the values of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

Kind = Literal["inference", "training"]
Inputs = tuple[Any, ...] | dict[str, Any]
OptimizerMaker = Callable[[Sequence[Tensor]], torch.optim.Optimizer]


class NotRunnableError(Exception):
    """An input that can't be built, or that plain PyTorch or ONNX Runtime does not run; the message is the reason."""


def adamw(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """AdamW with its default settings."""
    return torch.optim.AdamW(parameters)


def sgd(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """SGD without momentum."""
    return torch.optim.SGD(parameters, lr=0.01)


def squares(module: nn.Module, *inputs: Any, **keywords: Any) -> Tensor:
    """The loss that a module returns as `loss`, else the mean of the squares of each floating-point tensor, summed."""
    output = module(*inputs, **keywords)
    own = getattr(output, "loss", None)
    if isinstance(own, Tensor) and own.dim() == 0 and own.requires_grad:
        return own
    leaves = [leaf for leaf in pytree.tree_leaves(plain(output)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not leaves:
        raise NotRunnableError("returns no floating-point tensor with a gradient")
    return torch.stack([leaf.abs().square().mean().float() for leaf in leaves]).sum()


def plain(output: Any) -> Any:
    """An output with dicts for mappings of any class."""
    return dict(output) if isinstance(output, Mapping) else output


@dataclass(frozen=True)
class TorchCase:
    """A module, the inputs of a call, and what a training step needs besides."""

    module: nn.Module
    inputs: Inputs
    loss: Callable[..., Tensor] = squares
    optimizer: OptimizerMaker = sgd


@dataclass(frozen=True)
class OnnxCase:
    """An ONNX file, and the values of its inputs by name."""

    path: str
    inputs: Mapping[str, np.ndarray]


Case = TorchCase | OnnxCase


class Source(Protocol):
    """A module of `sources/`: where inputs come from."""

    KINDS: Sequence[Kind]

    def names(self) -> list[str]:
        """All inputs, in a fixed order."""

    def case(self, name: str, kind: Kind) -> Case:
        """An input, the same one at every call. Raises any exception if it can't be built."""
