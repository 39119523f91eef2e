"""A PyTorch step to place: a module with example inputs and, for training, a loss and an optimiser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from gnnplace.frontends.origin import captured
from gnnplace.frontends.torch.builder import TracedStep, traced_step
from gnnplace.frontends.torch.flat_step import Loss, Updating
from gnnplace.frontends.torch.inference import inference
from gnnplace.frontends.torch.inputs import ExampleInputs, Inputs
from gnnplace.frontends.torch.known_values import Sizes
from gnnplace.frontends.torch.optimizers import Optimizer, built
from gnnplace.frontends.torch.split_batch import SplitBatch
from gnnplace.frontends.torch.trace import trace
from gnnplace.graph import ComputationGraph


@dataclass(frozen=True)
class TorchStep:
    """A training step: a module, its scalar loss `loss(module, *inputs)`, example inputs and an optimiser.

    Args:
        module: a module; one compiled by `torch.compile` is traced uncompiled
        loss: called with the module and the inputs; None for a module that returns its loss, as Hugging Face's do when
            they get `labels`
        inputs: a sequence of positional inputs or a mapping of named ones; tensors may be nested in containers
        optimizer: the name of a class of `torch.optim` ("adam", "adamw", "sgd", ...); that class, or a function of
            parameters; or an optimiser of the module's own parameters, or a list of several, each of others. An update
            costs as much as one ideal fused kernel; schedulers cost nothing
        clip_norm: the largest common norm of all gradients
        clip_value: the largest element of a gradient
        sizes: "example" takes sizes and numbers that depend on the values of inputs and buffers (self-loops of a graph,
            lengths of sequences) from these example inputs, and the graph's name says so; "run" computes the step and
            takes those, too, that depend on parameters and random numbers, for planning alone; None refuses such
            modules
        micro_batches: the number of micro-batches whose gradients a step sums. The inputs are split along the
            dimension of the batch. The graph is captured from the first micro-batch
        shared: tensors that all micro-batches read whole: "input_0" is the first of the inputs. Scalars need no name
        batch_dim: the dimension of the batch in all tensors of the inputs, or one for each: 1 where time comes first

    Raises ValueError for a field of another type or range, and for inputs that can't be split.

        >>> net = nn.Linear(4, 2)
        >>> adamw = torch.optim.AdamW(net.parameters(), lr=3e-4, weight_decay=0.1)
        >>> step = TorchStep(net, lambda net, x: net(x).sum(), {"x": torch.zeros(3, 4)}, adamw, clip_norm=1.0)
        >>> graph = step.computation_graph("net")
        >>> graph.kind[graph.num_ops - 1]
        'aten._fused_adamw_'
        >>> step = TorchStep(net, lambda net, x: net(x).sum(), (torch.zeros(6, 4),), micro_batches=2)
        >>> step.computation_graph("net").micro_batches
        2
    """

    module: nn.Module
    loss: Loss | None
    inputs: Inputs
    optimizer: Optimizer = "adam"
    _: KW_ONLY
    clip_norm: float | None = None
    clip_value: float | None = None
    sizes: Sizes = None
    micro_batches: int = 1
    shared: Sequence[str] = ()
    batch_dim: int | Sequence[int] = 0
    accumulate: InitVar[object] = None

    def __post_init__(self, accumulate: object) -> None:
        if accumulate is not None:
            raise ValueError(
                f"accumulate: {accumulate!r}; give micro_batches=, and the whole batch as inputs, which is split"
            )
        object.__setattr__(self, "module", _checked(self.module))
        _check_sizes(self.sizes)
        if self.loss is not None and not callable(self.loss):
            raise ValueError(
                f"loss: a {type(self.loss).__name__} is no function; give one to be called as loss(module, *inputs)"
            )
        _check_inputs(self.inputs)
        _ = self._updating, self.batch

    @cached_property
    def built_optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimisers of the module's parameters."""
        return built(self.optimizer, self.module)

    @cached_property
    def batch(self) -> SplitBatch:
        """The inputs, which can be split into micro-batches."""
        return SplitBatch(self.inputs, self.micro_batches, self.shared, self.batch_dim)

    def of_micro_batch(self) -> TorchStep:
        """The step of the first micro-batch alone."""
        return replace(self, inputs=self.batch.micro_batch, micro_batches=1, shared=())

    def traced(self, name: str) -> TracedStep:
        """The step of one micro-batch as a graph named `name`. Raises ValueError if it can't be traced."""
        traced = trace(self.module, self.loss or own_loss, self.batch.micro_batch, self._updating, self.sizes)
        return traced_step(traced, name)

    def loss_of(self, module: nn.Module, tensors: Sequence[Tensor]) -> Tensor:
        """The loss of a copy of the module, with `tensors` of a micro-batch in place of those in the inputs."""
        positional, keywords = ExampleInputs(self.inputs).call(tensors)
        return (self.loss or own_loss)(module, *positional, **keywords)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The step's graph, named `name`. Raises ValueError if it can't be traced."""
        return captured(self.batch.step(self.traced(name).graph), self)

    @property
    def _updating(self) -> Updating:
        return Updating(self.built_optimizers, self.clip_norm, self.clip_value)


@dataclass(frozen=True)
class TorchInference:
    """The forward pass of a module in eval mode, with example inputs, `sizes` and micro-batches as in `TorchStep`."""

    module: nn.Module
    inputs: Inputs
    sizes: Sizes = None
    _: KW_ONLY
    micro_batches: int = 1
    shared: Sequence[str] = ()
    batch_dim: int | Sequence[int] = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", _checked(self.module))
        _check_sizes(self.sizes)
        _check_inputs(self.inputs)
        _ = self.batch

    @cached_property
    def batch(self) -> SplitBatch:
        """The inputs, which can be split into micro-batches."""
        return SplitBatch(self.inputs, self.micro_batches, self.shared, self.batch_dim)

    def traced(self, name: str) -> TracedStep:
        """The forward pass of one micro-batch as a graph named `name`. Raises ValueError if it can't be captured."""
        return inference(self.module, self.batch.micro_batch, name=name, sizes=self.sizes)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The graph of the forward pass, named `name`. Raises ValueError if it can't be captured."""
        return captured(self.batch.step(self.traced(name).graph), self)


def own_loss(module: nn.Module, *inputs: Any, **keywords: Any) -> Tensor:
    """The loss that a module returns itself: alone, as its attribute `loss`, or as the first item of a tuple.

    Raises ValueError if there is none.
    """
    output = module(*inputs, **keywords)
    loss = output[0] if isinstance(output, tuple) and output else getattr(output, "loss", output)
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        what = f"a {'tensor' if isinstance(output, Tensor) else type(output).__name__} without a scalar loss"
        raise ValueError(
            f"loss: the module returns {what}; give a function loss(module, *inputs), or the inputs it needs, such "
            "as labels"
        )
    return loss


def _checked(module: object) -> nn.Module:
    """The module; the original of a compiled one (`torch.compile`). Raises ValueError for anything else."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"module: a {type(module).__name__} is no torch.nn.Module")
    original = getattr(module, "_orig_mod", module)
    assert isinstance(original, nn.Module)
    return original


def _check_inputs(inputs: object) -> None:
    if not isinstance(inputs, Sequence | Mapping) or isinstance(inputs, str):
        raise ValueError(f"inputs: a {type(inputs).__name__} is no sequence or mapping; give a single tensor x as (x,)")


def _check_sizes(sizes: object) -> None:
    if sizes not in (None, "example", "run"):
        raise ValueError(f"sizes: {sizes!r} is none of 'example', 'run' and None")
