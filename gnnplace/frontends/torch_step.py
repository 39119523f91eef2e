"""What a PyTorch step is made of: the module and example inputs; for training, its loss and the optimiser besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from gnnplace.frontends.torch import TracedStep, training_step
from gnnplace.frontends.torch_inference import Inputs, inference
from gnnplace.frontends.torch_trace import Optimizer
from gnnplace.graph import ComputationGraph


@dataclass(frozen=True)
class TorchStep:
    """A module, the scalar loss of `loss(module, *inputs)`, example inputs, and the optimiser that trains it."""

    module: nn.Module
    loss: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    optimizer: Optimizer = "adam"

    def traced(self, name: str) -> TracedStep:
        """The step as a graph. Raises ValueError where it can't be traced."""
        return training_step(self.module, self.loss, self.inputs, optimizer=self.optimizer, name=name)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The graph alone."""
        return self.traced(name).graph


@dataclass(frozen=True)
class TorchInference:
    """A module and example inputs: those of its call in order, or by name in a mapping."""

    module: nn.Module
    inputs: Inputs

    def traced(self, name: str) -> TracedStep:
        """The module's inference as a graph. Raises ValueError where it can't be captured."""
        return inference(self.module, self.inputs, name=name)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The graph alone."""
        return self.traced(name).graph
