"""A PyTorch module's training step as a ComputationGraph of ATen ops: forward, backward and update, flat.

    step = training_step(module, lambda module, x, y: cross_entropy(module(x), y), (x, y), name="mlp")

Nothing is computed and no memory is taken: module and inputs may be on the `meta` device. What the graph holds:

- each parameter and buffer is an op `variable` with its persistent bytes (the optimiser's state included), and, where it
  is used, one op `read` that aliases it; an unused parameter is an op without edges;
- views and in-place ops alias the buffer of an input; a view that equals an earlier tensor (`detach`, a transpose of a
  transpose) is that tensor, not an op;
- one fused update a parameter, in place, after everyone who reads the parameter, on the parameter's device; one row-wise
  update for each lookup of a sparse embedding;
- `layer` is the module path, for the gradient of a module's ops too; `block` the first number in it;
- `time_step` is the one that a module marks (`torch_scopes.time_step`), for gradients too; what is made of parameters alone, sums of
  weight gradients over time and updates have none;
- a gradient op is `backward_weight` where it serves only parameters of its own layer, else `backward_data`.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from gnnplace.frontends.torch.builder import TracedStep as TracedStep
from gnnplace.frontends.torch.builder import traced_step
from gnnplace.frontends.torch.trace import Loss, Optimizer, trace


def training_step(module: nn.Module, loss: Loss, inputs: Sequence[Tensor], *, optimizer: Optimizer = "adam", name: str) -> TracedStep:
    """Traces one step of `loss(module, *inputs)` with Adam or plain SGD.

    Raises ValueError where the loss is not a scalar, depends on no parameter, or the step on the values of its tensors.
    """
    return traced_step(trace(module, loss, inputs, optimizer), name, "make_fx")
