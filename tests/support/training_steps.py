"""Training steps traced from a module and its loss alone."""

from __future__ import annotations

from torch import nn

from gnnplace.frontends.torch.builder import TracedStep, traced_step
from gnnplace.frontends.torch.flat_step import Loss, Updating
from gnnplace.frontends.torch.inputs import Inputs
from gnnplace.frontends.torch.optimizers import Optimizer
from gnnplace.frontends.torch.trace import trace


def training_step(
    module: nn.Module,
    loss: Loss,
    inputs: Inputs,
    *,
    optimizer: Optimizer = "adam",
    accumulate: int = 1,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    name: str,
) -> TracedStep:
    """Traces one training step of `loss(module, *inputs)`, or of `loss(module, **inputs)` for a mapping.

    The arguments from `optimizer` on are those of `TorchStep`. Raises ValueError if the loss is not a scalar or depends on no parameter, if
    the step depends on the values of its tensors, and for an optimiser that can't update the module.
    """
    return traced_step(trace(module, loss, inputs, Updating(optimizer, accumulate, clip_norm, clip_value)), name)
