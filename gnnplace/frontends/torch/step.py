"""A PyTorch step to place: a module with example inputs and, for training, a loss and an optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from torch import Tensor, nn

from gnnplace.frontends.torch.inference import Inputs, inference
from gnnplace.frontends.torch.trace import Optimizer
from gnnplace.frontends.torch.training import TracedStep, training_step
from gnnplace.graph import ComputationGraph


@dataclass(frozen=True)
class TorchStep:
    """A training step: a module, its scalar loss `loss(module, *inputs)`, example inputs and an optimiser (`adam`, `sgd`).

    Raises ValueError for a field of another type.
    """

    module: nn.Module
    loss: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    optimizer: Optimizer = "adam"

    def __post_init__(self) -> None:
        _check_module(self.module)
        if not callable(self.loss):
            raise ValueError(f"loss: a {type(self.loss).__name__} is no function; give one to be called as loss(module, *inputs)")
        if self.optimizer not in get_args(Optimizer):
            given = repr(self.optimizer) if isinstance(self.optimizer, str) else f"a {type(self.optimizer).__name__}"
            raise ValueError(f"optimizer: {given} is none of {', '.join(get_args(Optimizer))}")
        _check_sequence(self.inputs)
        for index, value in enumerate(self.inputs):
            if not isinstance(value, Tensor):
                raise ValueError(f"inputs[{index}]: a {type(value).__name__} is no tensor; let the loss itself hold anything else it needs")

    def traced(self, name: str) -> TracedStep:
        """The step as a graph named `name`. Raises ValueError if it can't be traced."""
        return training_step(self.module, self.loss, self.inputs, optimizer=self.optimizer, name=name)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The graph alone."""
        return self.traced(name).graph


@dataclass(frozen=True)
class TorchInference:
    """The forward pass in eval mode: a module and example inputs, a sequence of arguments or a mapping of keyword arguments."""

    module: nn.Module
    inputs: Inputs

    def __post_init__(self) -> None:
        _check_module(self.module)
        if not isinstance(self.inputs, Mapping):
            _check_sequence(self.inputs)

    def traced(self, name: str) -> TracedStep:
        """The forward pass as a graph named `name`. Raises ValueError if it can't be captured."""
        return inference(self.module, self.inputs, name=name)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The graph alone."""
        return self.traced(name).graph


def _check_module(module: object) -> None:
    if not isinstance(module, nn.Module):
        raise ValueError(f"module: a {type(module).__name__} is no torch.nn.Module")


def _check_sequence(inputs: object) -> None:
    if not isinstance(inputs, Sequence):
        raise ValueError(f"inputs: a {type(inputs).__name__} is no sequence; give a single tensor x as (x,)")
