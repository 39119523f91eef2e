"""The unplaced step, with which a placed step is compared: eager PyTorch or, if ops draw random numbers, the trace."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.execution.measure import checked
from gnnplace.execution.torch.device import seed
from gnnplace.execution.torch.replicas import ReplicaBuffers
from gnnplace.execution.torch.values import Node, is_random, random_nodes
from gnnplace.execution.workload import ExecutionPlan, Outputs
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.inference import evaluating, tensors_in
from gnnplace.frontends.torch.inputs import ExampleInputs, uncompiled
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

Values = Mapping[str, Tensor]
GRADIENT = "gradient of "
NOISE = 0.01  # of the largest gradient: a gradient that should be 0 (of a bias before batch norm) is rounding noise


def run_trace(traced: TracedStep, held: Mapping[Node, Tensor], step: int, device: torch.device) -> dict[Node, Any]:
    """The value of every node of a trace. The ops run one by one on one device.

    They start from the values in `held` and change them as the step does. A random op draws the numbers that it draws
    in the step of this number under any placement.
    """
    values: dict[Node, Any] = dict(held)
    for node in traced.trace.graph.nodes:
        if node.op == "call_function":
            if is_random(node):
                torch.manual_seed(seed(step, traced.op_of[node], traced.graph.num_ops))
            arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*arguments, **(named | ({"device": device} if "device" in named else {})))
    return values


class Unplaced:
    """A step on a copy of its module in this host's memory. It runs once, before the placed step changes the module."""

    def __init__(
        self, step: TorchStep | TorchInference, traced: TracedStep, problem: Problem, plan: ExecutionPlan
    ) -> None:
        self._step, self._traced = step, traced
        self._draws = bool(random_nodes(traced.trace.graph))
        if self._draws and any(device.kind == "gpu" for device in plan.devices):
            raise ValueError(
                "check: ops draw random numbers, and GPUs draw others than this host; place it without check, or "
                "without dropout"
            )
        needed, free = _peak_bytes(problem), os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > free:
            raise ValueError(
                f"check: the unplaced step needs {needed} bytes, and this host has {free} free; place it without check"
            )

    def outputs(
        self, inputs: Sequence[Tensor], number: int, results: Callable[[Mapping[Node, Any]], Values]
    ) -> Outputs:
        """The step's gradients or outputs, and the module's buffers after it.

        `results` selects them from the values of the trace's nodes. `number` is the step's, for its random ops.
        """
        module = _copied(self._step.module).to("cpu")
        inputs = [value.detach().to("cpu", copy=True) for value in inputs]
        if self._draws:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                values = results(run_trace(self._traced, self._held(module, inputs), number, torch.device("cpu")))
        else:
            with uncompiled():
                values = (
                    _trained(self._step, self._traced.graph, module, inputs)
                    if isinstance(self._step, TorchStep)
                    else _inferred(self._step, module, inputs)
                )
        return as_outputs(values, module)

    def check(self, placed: Outputs, expected: Outputs) -> None:
        """Raises MeasurementError(wrong_output) if the placed call differs from the unplaced by more than rounding."""
        sizes = {
            name: float(np.abs(value).max(initial=0))
            for name, value in expected.variables.items()
            if name.startswith(GRADIENT)
        }
        least = dict.fromkeys(sizes, NOISE * max(sizes.values(), default=0.0))
        checked(placed, expected, "the traced step" if self._draws else "eager PyTorch", least)

    def _held(self, module: nn.Module, inputs: Sequence[Tensor]) -> dict[Node, Tensor]:
        """The values of nodes that exist before the step."""
        trace, values = self._traced.trace, self._step.batch.named(inputs)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        nodes = [node for node in trace.graph.nodes if node.op == "placeholder"]
        held = {
            node: values[argument.of_step]
            if argument.role == "input"
            else tensors[argument.name].detach().clone()
            if argument.copy
            else tensors[argument.name].detach()
            for node, argument in zip(nodes, trace.arguments, strict=True)
        }
        return held | {
            node: trace.constants[node.target].clone() for node in trace.graph.nodes if node.op == "get_attr"
        }


def as_outputs(values: Values, module: nn.Module) -> Outputs:
    """The results of a call and the module's buffers after it, as arrays."""
    named = dict(values) | {f"buffer {name}": value for name, value in module.named_buffers()}
    return Outputs((), {name: _array(value) for name, value in named.items()})


def _trained(step: TorchStep, graph: ComputationGraph, module: nn.Module, inputs: Sequence[Tensor]) -> Values:
    """The loss and the gradients of an eager training step, whose micro-batches run one after another."""
    for example, value in zip(ExampleInputs(step.inputs).tensors, inputs, strict=True):
        value.requires_grad_(example.requires_grad)
    module.zero_grad()
    buffers, number, losses = ReplicaBuffers(graph, module), step.micro_batches, []
    with torch.enable_grad():
        for micro_batch, parts in enumerate(step.batch.split(inputs)):
            with buffers.of(micro_batch):
                loss = step.loss_of(module, parts)
                losses.append(loss if number == 1 else loss / number)
                losses[-1].backward()
    buffers.settle()
    loss = sum(losses[1:], losses[0])
    leaves = dict(module.named_parameters()) | {f"input {number}": value for number, value in enumerate(inputs)}
    gradients = {f"{GRADIENT}{name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return {"loss": loss} | gradients


def _inferred(step: TorchInference, module: nn.Module, inputs: Sequence[Tensor]) -> Values:
    """The outputs of an eager forward pass."""
    positional, named = ExampleInputs(step.inputs).call(inputs)
    with evaluating(module), torch.no_grad():
        return {f"output {number}": output for number, output in enumerate(tensors_in(module(*positional, **named)))}


def _copied(module: nn.Module) -> nn.Module:
    """A copy of a module. Raises ValueError if it has none, such as one that keeps a tensor of an earlier step."""
    try:
        return copy.deepcopy(module)
    except Exception as error:  # a part of the module may raise anything
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"check: the module can't be copied: {cause}; place it without check") from None


def _array(tensor: Tensor) -> np.ndarray:
    dense = tensor.detach().cpu()
    dense = dense if dense.layout is torch.strided else dense.to_dense()
    small = dense.dtype.is_floating_point and dense.dtype is not torch.float64
    return (dense.double() if small else dense.resolve_conj().resolve_neg()).numpy()


def _peak_bytes(problem: Problem) -> int:
    """The peak memory of the whole step on one device, by the simulator."""
    (result,) = simulate(problem, [Placement(np.zeros(problem.graph.num_ops, dtype=np.int32))])
    return 0 if result.peak_memory_bytes is None else int(result.peak_memory_bytes.max())
