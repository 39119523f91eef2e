"""A module that runs on the devices of a plan, in its owner's own loop: with any data, optimiser, scheduler, clipping.

A call runs the ops of the traced step except its updates, by the executor that is also measured. The module's
parameters are in the memory that devices read. The backward pass hands over the gradients that the call has computed,
times the gradient of its loss.

The step without updates is traced from a step with plain SGD, whose updates show the gradient of each parameter: these
gradients become results, and the updates are removed (`gradient_step`). All other ops are those of the step with any
optimiser, by the same names.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.execution.measure import legal, planned
from gnnplace.execution.torch import distributed
from gnnplace.execution.torch.live_step import LiveStep
from gnnplace.execution.torch.unplaced import GRADIENT, Unplaced, as_outputs
from gnnplace.execution.torch.values import Node
from gnnplace.execution.workload import without_updates
from gnnplace.frontends.torch import updates  # noqa: F401, registers update_
from gnnplace.frontends.torch.builder import TracedStep, traced_step
from gnnplace.frontends.torch.inference import example_output, with_tensors
from gnnplace.frontends.torch.inputs import CallArguments
from gnnplace.frontends.torch.scopes import scope_of
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.frontends.torch.trace import Trace
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.problems import Problem

_aten = torch.ops.aten
UPDATES = (_aten._fused_sgd_.default, torch.ops.gnnplace.update_.default, _aten.index_add_.default)


class Rows(NamedTuple):
    """The gradient of one lookup in a sparse embedding: the indices of rows (one dimension), and their gradients."""

    indices: Node
    rows: Node


@dataclass(frozen=True, eq=False)
class GradientStep:
    """A traced step without updates: the node of its loss, and the nodes of each parameter's gradient by name.

    The gradient of a sparse embedding has nodes for each lookup. `inputs` are the gradients of inputs that require one,
    by the number of the input.
    """

    traced: TracedStep
    loss: Node
    inputs: Mapping[int, Node]
    dense: Mapping[str, Node]
    sparse: Mapping[str, tuple[Rows, ...]]


def gradient_step(step: TorchStep, name: str) -> GradientStep:
    """Traces a step without its updates as a graph named `name`. Raises ValueError if it can't be traced."""
    traced = TorchStep(step.module, step.loss, step.inputs, "sgd", sizes=step.sizes).traced(name)
    graph, dense, sparse = traced.trace.graph, dict[str, Node](), dict[str, tuple[Rows, ...]]()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    names = {node: argument.name for node, argument in zip(placeholders, traced.trace.arguments, strict=True)}
    table_of = dict[Node, Node]()  # the table that an update in place returns
    for node in [node for node in graph.nodes if node.op == "call_function" and scope_of(node).phase == "update"]:
        if node.target is _aten._fused_sgd_.default:
            (parameter,), (gradient,) = node.args[0], node.args[1]
            dense[names[parameter]] = gradient
        elif node.target is torch.ops.gnnplace.update_.default:  # of a complex parameter
            parameter, gradient = node.args[:2]
            dense[names[parameter]] = gradient
        elif node.target is _aten.index_add_.default:
            table = table_of[node] = table_of.get(node.args[0], node.args[0])
            sparse[names[table]] = (*sparse.get(names[table], ()), Rows(node.args[2], node.args[3]))
    loss, *of_inputs = cast(Sequence[Node], graph.output_node().args[0])
    inputs = {number: node for number, node in enumerate(of_inputs) if isinstance(node, Node)}
    pairs = [node for lookups in sparse.values() for rows in lookups for node in rows]
    graph.output_node().args = ([loss, *inputs.values(), *dense.values(), *pairs],)
    for node in reversed(graph.nodes):
        if node.target in UPDATES and scope_of(node).phase == "update":
            graph.erase_node(node)
    reduced = traced_step(replace(traced.trace, graph=graph), name)
    return GradientStep(reduced, loss, inputs, dense, sparse)


def placed(
    step: TorchStep | TorchInference, problem: Problem, placement: Placement, seed: int, check: bool
) -> PlacedModule:
    """The module of a step on the devices of a placement. Raises ValueError and MeasurementError as `gp.placed`."""
    if distributed.launched():
        raise MeasurementError("unsupported", "gp.placed starts devices itself, not under torchrun")
    if step.micro_batches > 1:
        raise ValueError(
            f"micro_batches: {step.micro_batches}, and a placed module computes one a call; place the step of a "
            "micro-batch, and add up gradients in your loop"
        )
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
        self._given = CallArguments(step.inputs, differentiable=isinstance(step, TorchStep))
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
        results = self._step.run(inputs)
        if unplaced is not None and expected is not None:
            values = self._named(dict(zip(self._nodes, results, strict=True)))
            try:
                unplaced.check(as_outputs(values, self._user_module[0]), expected)
            except MeasurementError:
                self.close()
                raise
        return results

    def _start(
        self, step: TorchStep | TorchInference, traced: TracedStep, problem: Problem, placement: Placement,
        results: Mapping[Node, Tensor], seed: int, check: bool,
    ) -> None:  # fmt: skip
        if traced.trace.sizes is not None:
            traced.trace.sizes.check_repeatable()
        plan = without_updates(planned(problem, legal(problem, placement)), problem.graph, traced.graph)
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
        traced = gradient_step(step, problem.graph.name)
        self._gradients = _Gradients(traced, dict(step.module.named_parameters()))
        self._modes = self._mode()
        self._start(step, traced.traced, problem, placement, self._gradients.results, seed, check)

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
        self._start(step, traced, problem, placement, results, seed, check)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The module's outputs for inputs, in the containers that it returns."""
        values = dict(zip(self._nodes, self._run(self._read(inputs, named)), strict=True))
        return with_tensors(self._example, [values[node] for node in self._output_nodes])

    def _named(self, values: Mapping[Node, Tensor]) -> Mapping[str, Tensor]:
        return {f"output {number}": values[node] for number, node in enumerate(self._output_nodes)}


class _Gradients:
    """Selects the gradients of parameters and inputs from the results of a step."""

    def __init__(self, step: GradientStep, parameters: Mapping[str, nn.Parameter]) -> None:
        self.trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
        self.parameters = {name: parameters[name] for name in (*step.dense, *step.sparse)}
        self.inputs = tuple(step.inputs)
        self.names = (*self.parameters, *(f"input {number}" for number in self.inputs))
        self._step = step
        like = {node: parameters[name] for name, node in step.dense.items()}
        pairs = [node for rows in step.sparse.values() for row in rows for node in row]
        self.results: dict[Node, Tensor] = {
            node: torch.empty_like(like.get(node, node.meta["val"]), device="meta")
            for node in (step.loss, *step.inputs.values(), *pairs, *like)
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
        return tensors[self._step.loss], [*of_parameters, *(tensors[node] for node in self._step.inputs.values())]


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
