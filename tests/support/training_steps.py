"""Training steps traced from a module and its loss alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from unittest.mock import patch

from torch import Tensor, nn

from gnnplace.frontends.torch import trace as tracing
from gnnplace.frontends.torch.builder import TracedStep, traced_step
from gnnplace.frontends.torch.flat_step import FlatStep, Lookup, Loss, Updating
from gnnplace.frontends.torch.inputs import Inputs
from gnnplace.frontends.torch.optimizers import Optimizer
from gnnplace.frontends.torch.trace import trace
from gnnplace.graph import ComputationGraph


def training_step(
    module: nn.Module,
    loss: Loss,
    inputs: Inputs,
    *,
    optimizer: Optimizer = "adam",
    clip_norm: float | None = None,
    clip_value: float | None = None,
    name: str,
) -> TracedStep:
    """Traces one training step of `loss(module, *inputs)`, or of `loss(module, **inputs)` for a mapping.

    The arguments from `optimizer` on are those of `TorchStep`. Raises ValueError if the loss is not a scalar or depends on no parameter, if
    the step depends on the values of its tensors, and for an optimiser that can't update the module.
    """
    updating = Updating(optimizer, clip_norm=clip_norm, clip_value=clip_value)
    return traced_step(trace(module, loss, inputs, updating), name)


def accumulated_step(module: nn.Module, loss: Loss, inputs: Sequence[Tensor], updating: Updating, micro_batches: int) -> ComputationGraph:
    """The graph of a training loop that adds up gradients: `(loss / micro_batches).backward()` for each micro-batch, then an update."""
    turn = cycle(range(micro_batches))

    class Accumulating(FlatStep):
        def _backward(self, values: dict[str, Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, list[Lookup]]:
            steps = [super(Accumulating, self)._backward(values, inputs) for _ in range(micro_batches)]
            losses = [loss.detach() for loss, _ in steps]
            return sum(losses[1:], losses[0]), [lookup for _, lookups in steps for lookup in lookups]

    def mean(module: nn.Module, *batches: Sequence[Tensor]) -> Tensor:
        return loss(module, *batches[next(turn)]) / micro_batches

    with patch.object(tracing, "FlatStep", Accumulating):
        traced = trace(module, mean, [tuple(inputs)] * micro_batches, updating)
    return traced_step(traced, "accumulated").graph
