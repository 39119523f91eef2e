"""A PyTorch module's training step as a ComputationGraph of ATen ops: forward, backward and update, flat.

    step = training_step(module, lambda module, x, y: cross_entropy(module(x), y), (x, y), name="mlp")

Nothing is computed and no memory is allocated: module and inputs may be on the `meta` device. The graph holds:

- each parameter and buffer is an op `variable` with its persistent bytes (including the optimiser's state) and, if it is used, one op
  `read` that aliases it; an unused parameter is an op without edges;
- views and in-place ops alias the buffer of an input; a view that equals an earlier tensor (`detach`, a transpose of a
  transpose) is that tensor, not an op;
- a writer stands with its buffer and with the views through which it writes; what is read after a write is taken anew from the buffer,
  by an op `alias` that stands there, too; a buffer that the module replaces is written once, at the end;
- each parameter has one fused in-place update, after all reads of the parameter and on its device; a sparse embedding has one row-wise
  update for each lookup; gradients of micro-batches are added, and clipped ones scaled, by ops of their own;
- `layer` is the module path, also of the gradients of a module's ops; `block` is the first number in it;
- `time_step` is what the module marks (`scopes.time_step`), also for gradients; ops on parameters alone, sums of weight gradients over time
  and updates have none;
- a gradient op is `backward_weight` if it serves only parameters of its own layer, else `backward_data`.
"""

from __future__ import annotations

from torch import nn

from gnnplace.frontends.torch.builder import TracedStep as TracedStep
from gnnplace.frontends.torch.builder import traced_step
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
    return traced_step(trace(module, loss, inputs, Updating(optimizer, accumulate, clip_norm, clip_value)), name, "make_fx")
