"""A module that runs on the devices of a plan, in its owner's own loop: with any data, optimiser, scheduler, clipping.

A call runs the ops of the traced step but its updates, by the executor that is measured. Its parameters are those of
the module, where the devices read them; the backward pass hands over the gradients that the call has computed, times
the gradient of its loss.

A training step without its update: the loss and the gradient of each parameter that has one, for an optimiser in
somebody else's hands.

It is the step of plain SGD, whose updates show the gradients, with these as results in the place of the updates. All
other ops are those of the step with any optimiser, by the same names.
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
from gnnplace.frontends.torch import updates  # noqa: F401, whose op is one of those below
from gnnplace.frontends.torch.builder import TracedStep, traced_step
from gnnplace.frontends.torch.inference import example_output, with_tensors
from gnnplace.frontends.torch.inputs import CallArguments
from gnnplace.frontends.torch.scopes import scope_of
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.problems import Problem

_aten = torch.ops.aten
UPDATES = (_aten._fused_sgd_.default, torch.ops.gnnplace.update_.default, _aten.index_add_.default)


class Rows(NamedTuple):
    """The gradient of looked-up rows of a sparse embedding: which rows (one dimension), and the gradient of each."""

    indices: Node
    rows: Node


@dataclass(frozen=True, eq=False)
class GradientStep:
    """The traced step, the node of its loss, and what makes the gradient of
    each parameter, by name: a sparse one of several lookups.
    """

    traced: TracedStep
    loss: Node
    dense: Mapping[str, Node]
    sparse: Mapping[str, tuple[Rows, ...]]


def gradient_step(step: TorchStep, name: str) -> GradientStep:
    """Traces a step as a graph named `name`. Raises ValueError if it can't be traced."""
    traced = TorchStep(step.module, step.loss, step.inputs, "sgd").traced(name)
    graph, dense, sparse = traced.trace.graph, dict[str, Node](), dict[str, tuple[Rows, ...]]()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    names = {node: argument.name for node, argument in zip(placeholders, traced.trace.arguments, strict=True)}
    changed = dict[Node, Node]()  # what stands for a table after an update in place
    for node in [node for node in graph.nodes if node.op == "call_function" and scope_of(node).phase == "update"]:
        if node.target is _aten._fused_sgd_.default:
            (parameter,), (gradient,) = node.args[0], node.args[1]
            dense[names[parameter]] = gradient
        elif node.target is torch.ops.gnnplace.update_.default:  # of a complex parameter
            parameter, gradient = node.args[:2]
            dense[names[parameter]] = gradient
        elif node.target is _aten.index_add_.default:
            table = changed[node] = changed.get(node.args[0], node.args[0])
            sparse[names[table]] = (*sparse.get(names[table], ()), Rows(node.args[2], node.args[3]))
    (loss,) = graph.output_node().all_input_nodes
    pairs = [node for lookups in sparse.values() for rows in lookups for node in rows]
    graph.output_node().args = ([loss, *dense.values(), *pairs],)
    for node in reversed(graph.nodes):
        if node.target in UPDATES and scope_of(node).phase == "update":
            graph.erase_node(node)
    return GradientStep(traced_step(replace(traced.trace, graph=graph), name, traced.capture), loss, dense, sparse)


def placed(
    step: TorchStep | TorchInference, problem: Problem, placement: Placement, seed: int, check: bool
) -> PlacedModule:
    """The module of a step on the devices of a placement of the step's problem.

    Raises ValueError and MeasurementError as `gp.placed`.
    """
    if distributed.launched():
        raise MeasurementError("unsupported", "gp.placed starts devices itself, not under torchrun")
    if isinstance(step, TorchStep):
        return PlacedStep(step, problem, placement, seed, check)
    return PlacedInference(step, problem, placement, seed, check)


class PlacedModule(nn.Module, ABC):
    """A module whose parameters, buffers and parts are those of the user's, by the same names.

    `close` (or `with`) ends its devices.
    """

    def __init__(self, step: TorchStep | TorchInference) -> None:
        super().__init__()
        module = step.module
        self._own, self._given = (module,), CallArguments(step.inputs)  # in a tuple: no part of this module
        self._parameters, self._buffers, self._modules = module._parameters, module._buffers, module._modules
        self.training = module.training
        self._casts = _casts()

    _step: LiveStep
    _nodes: list[Node]  # of its results
    _draws: int
    _unplaced: Unplaced | None  # until the first call

    @abstractmethod
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Runs the step on inputs like those that it was placed with.

        Raises ValueError for others, and where the module has changed; MeasurementError where a device fails, which
        ends all.
        """

    def close(self) -> None:
        """Ends the devices. The module stays as it is, and can be placed again."""
        self._end()

    def train(self, mode: bool = True) -> PlacedModule:
        """Sets the training mode of the module, as `torch.nn.Module.train` does."""
        self._own[0].train(mode)
        self.training = self._own[0].training
        return self

    def state_dict(self, *arguments: Any, **named: Any) -> Any:
        """The module's state dict."""
        return self._own[0].state_dict(*arguments, **named)

    def load_state_dict(self, *arguments: Any, **named: Any) -> Any:
        """Loads a state dict into the module."""
        return self._own[0].load_state_dict(*arguments, **named)

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
        """What a call makes, by name, out of the values of nodes."""

    def _run(self, inputs: list[Tensor]) -> list[Tensor]:
        """A step's results.

        Raises MeasurementError where the first was to be compared with the unplaced one, and differs: then all end.
        """
        unplaced, self._unplaced = self._unplaced, None
        expected = None if unplaced is None else unplaced.outputs(inputs, self._draws + 1, self._named)
        results = self._step.run(inputs)
        if unplaced is not None and expected is not None:
            try:
                unplaced.check(
                    as_outputs(self._named(dict(zip(self._nodes, results, strict=True))), self._own[0]), expected
                )
            except MeasurementError:
                self.close()
                raise
        return results

    def _start(
        self, step: TorchStep | TorchInference, traced: TracedStep, problem: Problem, placement: Placement,
        results: Mapping[Node, Tensor], seed: int, check: bool,
    ) -> None:  # fmt: skip
        plan = without_updates(planned(problem, legal(problem, placement)), problem.graph, traced.graph)
        self._nodes, self._draws = list(results), int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._unplaced = Unplaced(step, traced, problem, plan) if check else None
        self._step = LiveStep(traced, plan, self._own[0], results, self._draws)
        self._end = weakref.finalize(self, _close, os.getpid(), self._step)

    def _read(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> list[Tensor]:
        if _casts() != self._casts:
            raise ValueError(
                "autocast: is not as it was when the step was placed; use it within the loss or the module"
            )
        return self._given.tensors(inputs, named)


class PlacedStep(PlacedModule):
    """A training step: a call returns the loss, whose backward pass gives the parameters their gradients."""

    def __init__(self, step: TorchStep, problem: Problem, placement: Placement, seed: int, check: bool) -> None:
        super().__init__(step)
        traced = gradient_step(step, problem.graph.name)
        self._gradients = _Gradients(traced, dict(step.module.named_parameters()))
        self._modes = self._mode()
        self._start(step, traced.traced, problem, placement, self._gradients.results, seed, check)

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """The loss of inputs; without gradients where PyTorch records none, though they are computed all the same."""
        self._check_modes()
        tensors, gradients = self._read(inputs, named), self._gradients
        if torch.is_grad_enabled():
            return _Step.apply(lambda: gradients.of(self._run(tensors)), *gradients.parameters.values())
        return self._run(tensors)[0]

    def _named(self, values: Mapping[Node, Tensor]) -> Mapping[str, Tensor]:
        loss, gradients = self._gradients.of([values[node] for node in self._nodes])
        return {"loss": loss} | {
            f"{GRADIENT}{name}": gradient for name, gradient in zip(self._gradients.parameters, gradients, strict=True)
        }

    def _check_modes(self) -> None:
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
        for name, parameter in self._own[0].named_parameters():
            if parameter.requires_grad and name not in self._gradients.trained:
                raise ValueError(
                    f"module: {name}: requires a gradient, and was frozen when the step was placed; place it anew"
                )

    def _mode(self) -> list[tuple[str, bool]]:
        return [(name, part.training) for name, part in self._own[0].named_modules()]


class PlacedInference(PlacedModule):
    """A forward pass in eval mode: a call returns what the module returns, without gradients."""

    def __init__(self, step: TorchInference, problem: Problem, placement: Placement, seed: int, check: bool) -> None:
        super().__init__(step)
        traced = step.traced(problem.graph.name)
        self._example, self._made = example_output(step.module, step.inputs), _results(traced)
        results = {node: torch.empty_like(node.meta["val"], device="meta") for node in self._made}
        self._start(step, traced, problem, placement, results, seed, check)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the module returns for inputs, in its own containers."""
        values = dict(zip(self._nodes, self._run(self._read(inputs, named)), strict=True))
        return with_tensors(self._example, iter([values[node] for node in self._made]))

    def _named(self, values: Mapping[Node, Tensor]) -> Mapping[str, Tensor]:
        return {f"output {number}": values[node] for number, node in enumerate(self._made)}


class _Gradients:
    """The gradients of parameters out of the results of a step."""

    def __init__(self, step: GradientStep, parameters: Mapping[str, nn.Parameter]) -> None:
        self.trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
        self.parameters = {name: parameters[name] for name in (*step.dense, *step.sparse)}
        self._step = step
        like = {node: parameters[name] for name, node in step.dense.items()}
        pairs = [node for rows in step.sparse.values() for row in rows for node in row]
        self.results: dict[Node, Tensor] = {
            node: torch.empty_like(node.meta["val"], device="meta") for node in (step.loss, *pairs)
        }
        self.results |= {node: torch.empty_like(parameter, device="meta") for node, parameter in like.items()}

    def of(self, results: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The loss, and the gradient of each of `parameters`."""
        tensors = dict(zip(self.results, results, strict=True))
        first = {node: name for name, node in reversed([*self._step.dense.items()])}  # two summands have one gradient
        gradients = {
            name: tensors[node] if first[node] == name else tensors[node].clone()
            for name, node in self._step.dense.items()
        }
        for name, rows in self._step.sparse.items():
            table = self.parameters[name]
            indices, values = (torch.cat([tensors[row[part]] for row in rows]) for part in (0, 1))
            gradients[name] = torch.sparse_coo_tensor(indices[None], values, table.shape, check_invariants=False)
        return tensors[self._step.loss], [
            gradients[name].to(parameter.device) for name, parameter in self.parameters.items()
        ]


class _Step(torch.autograd.Function):
    """A step as autograd sees it: the loss as a function of the parameters."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], tuple[Tensor, list[Tensor]]], *_: Tensor) -> Tensor:
        """Runs the step."""
        loss, ctx.gradients = run()
        return loss

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients times that of the loss. They become the parameters' own, so that none is copied once more."""
        if torch.is_grad_enabled():  # which it is here for a graph of gradients alone
            raise ValueError("create_graph: a placed step has first derivatives alone")
        gradients, ctx.gradients, scale = ctx.gradients, None, incoming.item()
        if gradients is None:
            raise ValueError("backward: the gradients of this call were handed over before; call the module again")
        return None, *(gradients if scale == 1 else [gradient.mul_(scale) for gradient in gradients])


def _results(traced: TracedStep) -> list[Node]:
    """The nodes of what a module returns, in order; one may be there twice."""
    outputs = traced.trace.graph.output_node().args[0]
    return list(cast(Sequence[Node], outputs if isinstance(outputs, list | tuple) else [outputs]))


def _casts() -> tuple[tuple[bool, torch.dtype], ...]:
    """PyTorch's autocast settings now: whether it is on, and the dtype, for CPU and CUDA."""
    return tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda"))


def _close(owner: int, step: LiveStep) -> None:
    """Ends the devices, where this process started them and is no fork of it."""
    if os.getpid() == owner:
        step.close()
