"""What a PyTorch training step is made of: the module, its loss, example inputs and the optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from gnnplace.frontends.torch import TracedStep, training_step
from gnnplace.frontends.torch_trace import Optimizer


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
