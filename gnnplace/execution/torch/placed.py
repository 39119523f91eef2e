"""A module that runs on the devices of a plan, in its owner's own loop: with any data, optimiser, scheduler, clipping.

A call runs the ops of the traced step except its updates, by the executor that is also measured. The module's
parameters are in the memory that devices read. The backward pass hands over the gradients that the call has computed,
times the gradient of its loss.

Of several micro-batches a call takes the whole batch, which is split, and gives the mean of their losses. All replicas
begin a call with the module's parameters and buffers; afterwards the module has the buffers of the first one, as with
DistributedDataParallel.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.execution.measure import legal, planned
from gnnplace.execution.torch import distributed
from gnnplace.execution.torch.gradient_step import GradientStep, gradient_step
from gnnplace.execution.torch.live_step import LiveStep
from gnnplace.execution.torch.unplaced import GRADIENT, Unplaced, as_outputs
from gnnplace.execution.torch.values import Node
from gnnplace.execution.workload import ExecutionPlan, without_updates
from gnnplace.frontends.torch import updates  # noqa: F401, registers update_
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.inference import example_output, with_tensors
from gnnplace.frontends.torch.inputs import CallArguments
from gnnplace.frontends.torch.split_batch import SplitBatch
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.frontends.torch.trace import Trace
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.transformations.parallelism import Parallelism


def placed(
    step: TorchStep | TorchInference, problem: Problem, placement: Placement, seed: int, check: bool
) -> PlacedModule:
    """The module of a step on the devices of a placement. Raises ValueError and MeasurementError as `gp.placed`."""
    if distributed.launched():
        raise MeasurementError("unsupported", "gp.placed starts devices itself, not under torchrun")
    number = problem.graph.micro_batches
    if step.micro_batches != number:
        raise ValueError(
            f"micro_batches: {step.micro_batches} of the step are not the {number} of the plan; give "
            f"{type(step).__name__}(..., micro_batches={number}) with the inputs of a whole batch"
        )
    if isinstance(step, TorchInference) and number > 1:
        raise ValueError(f"micro_batches: {number} of an inference step are requests; place the step of one")
    if isinstance(step, TorchStep):
        return PlacedStep(step, problem, placement, seed, check)
    return PlacedInference(step, problem, placement, seed, check)


class PlacedModule(nn.Module, ABC):
    """A module with the parameters, buffers and submodules of the user's module, by the same names.

    `close` (or `with`) ends its devices.
    """

    def __init__(self, step: TorchStep | TorchInference) -> None:
        super().__init__()
        module = step.module
        self._user_module = (module,)  # in a tuple, so that it is no submodule
        self._given, self._batch = CallArguments(step.inputs, differentiable=isinstance(step, TorchStep)), step.batch
        self._parameters, self._buffers, self._modules = module._parameters, module._buffers, module._modules
        self.training = module.training
        self._casts = _casts()

    _step: LiveStep
    _trace: Trace
    _nodes: list[Node]  # of the results
    _draws: int
    _unplaced: Unplaced | None  # until the first call

    @abstractmethod
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Runs the step on inputs like those that it was placed with.

        Raises ValueError for other inputs and for a module that has changed; MeasurementError if a device fails, which
        ends all devices.
        """

    def close(self) -> None:
        """Ends the devices. The module stays as it is, and can be placed again."""
        self._end()

    def train(self, mode: bool = True) -> PlacedModule:
        """Sets the training mode of the module, as `torch.nn.Module.train` does."""
        self._user_module[0].train(mode)
        self.training = self._user_module[0].training
        return self

    def state_dict(self, *arguments: Any, **named: Any) -> Any:
        """The module's state dict."""
        return self._user_module[0].state_dict(*arguments, **named)

    def load_state_dict(self, *arguments: Any, **named: Any) -> Any:
        """Loads a state dict into the module."""
        return self._user_module[0].load_state_dict(*arguments, **named)

    def __enter__(self) -> PlacedModule:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ValueError("placed: has devices that run; copy or save the module itself, or its state_dict")

    def _apply(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError("placed: stays where its plan says; close it, convert or move the module, and place it anew")

    @abstractmethod
    def _named(self, values: Mapping[Node, Tensor]) -> Mapping[str, Tensor]:
        """The results of a call by name, selected from the values of nodes."""

    def _run(self, inputs: list[Tensor]) -> list[Tensor]:
        """A step's results.

        The first call is compared with the unplaced step, if that was requested. Raises MeasurementError if they
        differ, which ends all devices.
        """
        unplaced, self._unplaced = self._unplaced, None
        expected = None if unplaced is None else unplaced.outputs(inputs, self._draws + 1, self._named)
        results = self._step.run(self._batch.named(inputs))
        if unplaced is not None and expected is not None:
            values = self._named(dict(zip(self._nodes, results, strict=True)))
            try:
                unplaced.check(as_outputs(values, self._user_module[0]), expected)
            except MeasurementError:
                self.close()
                raise
        return results

    def _start(
        self, step: TorchStep | TorchInference, traced: TracedStep, problem: Problem, plan: ExecutionPlan,
        results: Mapping[Node, Tensor], seed: int, check: bool,
    ) -> None:  # fmt: skip
        if traced.trace.sizes is not None:
            traced.trace.sizes.check_repeatable()
        self._nodes, self._draws = list(results), int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._unplaced = Unplaced(step, traced, problem, plan) if check else None
        self._trace = traced.trace
        self._step = LiveStep(traced, plan, self._user_module[0], results, self._draws)
        self._end = weakref.finalize(self, _close, os.getpid(), self._step)

    def _read(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> list[Tensor]:
        """The tensors of a call's arguments.

        Raises ValueError if they, autocast, or sizes that depend on values are not as they were placed.
        """
        if _casts() != self._casts:
            raise ValueError(
                "autocast: is not as it was when the step was placed; use it within the loss or the module"
            )
        tensors = self._given.tensors(inputs, named)
        if self._trace.sizes is not None:
            buffers, values = dict(self._user_module[0].named_buffers()), iter(tensors)
            arguments = {
                number: next(values) if argument.role == "input" else buffers[argument.name]
                for number, argument in enumerate(self._trace.arguments)
                if argument.role in ("input", "buffer")
            }
            self._trace.sizes.check(arguments)
        return tensors


class PlacedStep(PlacedModule):
    """A training step: a call returns the loss, whose backward pass gives the parameters their gradients."""

    def __init__(self, step: TorchStep, problem: Problem, placement: Placement, seed: int, check: bool) -> None:
        super().__init__(step)
        form, name = Parallelism.in_graph(problem.graph), problem.graph.name
        without = gradient_step(step, name, form, partial(_plan, problem, placement))
        self._gradients = _Gradients(without, dict(step.module.named_parameters()), step.batch)
        self._modes = self._mode()
        self._start(step, without.traced, problem, without.plan, self._gradients.results, seed, check)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The loss of inputs. Gradients are computed in any case, and dropped if PyTorch records none."""
        self._check_modes()
        tensors, gradients = self._read(inputs, named), self._gradients
        if torch.is_grad_enabled():
            leaves = (*gradients.parameters.values(), *(tensors[number] for number in gradients.inputs))
            return _Step.apply(lambda: gradients.of(self._run(tensors)), *leaves)
        return self._run(tensors)[0]

    def _named(self, values: Mapping[Node, Tensor]) -> Mapping[str, Tensor]:
        loss, gradients = self._gradients.of([values[node] for node in self._nodes])
        return {"loss": loss} | {
            f"{GRADIENT}{name}": gradient for name, gradient in zip(self._gradients.names, gradients, strict=True)
        }

    def _check_modes(self) -> None:
        """Raises ValueError if a module changed its mode, or a frozen parameter requires a gradient."""
        for (name, was), (_, now) in zip(self._modes, self._mode(), strict=False):
            if was != now:
                modes = (
                    "eval mode, and was placed in training mode"
                    if was
                    else "training mode, and was placed in eval mode"
                )
                raise ValueError(
                    f"module: {name or 'the whole'} is in {modes}; a placed step keeps to one, gp.TorchInference "
                    "evaluates"
                )
        for name, parameter in self._user_module[0].named_parameters():
            if parameter.requires_grad and name not in self._gradients.trained:
                raise ValueError(
                    f"module: {name}: requires a gradient, and was frozen when the step was placed; place it anew"
                )

    def _mode(self) -> list[tuple[str, bool]]:
        return [(name, part.training) for name, part in self._user_module[0].named_modules()]


class PlacedInference(PlacedModule):
    """A forward pass in eval mode: a call returns what the module returns, without gradients."""

    def __init__(self, step: TorchInference, problem: Problem, placement: Placement, seed: int, check: bool) -> None:
        super().__init__(step)
        traced = step.traced(problem.graph.name)
        self._example, self._output_nodes = example_output(step.module, step.inputs, step.sizes), _output_nodes(traced)
        results = {node: torch.empty_like(node.meta["val"], device="meta") for node in self._output_nodes}
        self._start(step, traced, problem, _plan(problem, placement, traced.graph), results, seed, check)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The module's outputs for inputs, in the containers that it returns."""
        values = dict(zip(self._nodes, self._run(self._read(inputs, named)), strict=True))
        return with_tensors(self._example, [values[node] for node in self._output_nodes])

    def _named(self, values: Mapping[Node, Tensor]) -> Mapping[str, Tensor]:
        return {f"output {number}": values[node] for number, node in enumerate(self._output_nodes)}


class _Gradients:
    """Selects the gradients of parameters and inputs from the results of a step."""

    def __init__(self, step: GradientStep, parameters: Mapping[str, nn.Parameter], batch: SplitBatch) -> None:
        self.trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
        self.parameters = {name: parameters[name] for name in (*step.dense, *step.sparse)}
        self.inputs = tuple(step.inputs)
        self.names = (*self.parameters, *(f"input {number}" for number in self.inputs))
        self._step, self._batch = step, batch
        like = {node: parameters[name] for name, node in step.dense.items()}
        pairs = [node for rows in step.sparse.values() for row in rows for node in row]
        self.results: dict[Node, Tensor] = {
            node: torch.empty_like(like.get(node, node.meta["val"]), device="meta")
            for node in (*step.losses, *(part for parts in step.inputs.values() for part in parts), *pairs, *like)
        }

    def of(self, results: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The loss, and the gradient of each of `parameters` and `inputs`."""
        tensors = dict(zip(self.results, results, strict=True))
        gradients = {name: tensors[node] for name, node in self._step.dense.items()}
        for name, rows in self._step.sparse.items():
            table = self.parameters[name]
            indices, values = (torch.cat([tensors[row[part]] for row in rows]) for part in (0, 1))
            gradients[name] = torch.sparse_coo_tensor(indices[None], values, table.shape, check_invariants=False)
        of_parameters = [gradients[name].to(parameter.device) for name, parameter in self.parameters.items()]
        of_inputs = [
            self._batch.gradient(number, [tensors[part] for part in parts])
            for number, parts in self._step.inputs.items()
        ]
        first, *others = (tensors[loss] for loss in self._step.losses)
        return sum((loss.to(first.device) for loss in others), first), [*of_parameters, *of_inputs]


class _Step(torch.autograd.Function):
    """A step for autograd: the loss as a function of parameters and inputs."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], tuple[Tensor, list[Tensor]]], *_: Tensor) -> Tensor:
        """Runs the step."""
        loss, ctx.gradients = run()
        return loss

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients times the gradient of the loss. They become the leaves' `grad` without another copy."""
        if torch.is_grad_enabled():  # only for create_graph
            raise ValueError("create_graph: a placed step has first derivatives alone")
        gradients, ctx.gradients, scale = ctx.gradients, None, incoming.item()
        if gradients is None:
            raise ValueError("backward: the gradients of this call were handed over before; call the module again")
        return None, *(gradients if scale == 1 else [gradient.mul_(scale) for gradient in gradients])


def _plan(problem: Problem, placement: Placement, graph: ComputationGraph) -> ExecutionPlan:
    """The plan of a placement for a graph that lacks the updates of the problem's."""
    return without_updates(planned(problem, legal(problem, placement)), problem.graph, graph)


def _output_nodes(traced: TracedStep) -> list[Node]:
    """The nodes of a module's outputs, in order. A node may occur twice."""
    outputs = traced.trace.graph.output_node().args[0]
    return list(cast(Sequence[Node], outputs if isinstance(outputs, list | tuple) else [outputs]))


def _casts() -> tuple[tuple[bool, torch.dtype], ...]:
    """PyTorch's autocast settings for CPU and CUDA: on or off, and the dtype."""
    return tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda"))


def _close(owner: int, step: LiveStep) -> None:
    """Ends the devices, unless this process is a fork of their owner."""
    if os.getpid() == owner:
        step.close()
