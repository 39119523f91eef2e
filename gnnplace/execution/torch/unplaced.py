"""What a placed step is compared with: the step in one memory, as eager PyTorch
runs it or, where ops draw numbers, its trace op by op.
"""

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
from gnnplace.execution.torch.values import Node, is_random
from gnnplace.execution.workload import ExecutionPlan, Outputs
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.inference import evaluating, tensors_in
from gnnplace.frontends.torch.inputs import ExampleInputs, uncompiled
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

Values = Mapping[str, Tensor]
GRADIENT = "gradient of "
NOISE = 0.01  # of the largest gradient: one that should be 0 (of a bias before batch norm) is rounding of such


def run_trace(traced: TracedStep, held: Mapping[Node, Tensor], step: int, device: torch.device) -> dict[Node, Any]:
    """The value of every node of a trace. The ops run one by one on one device, from the values that exist before the
    step, and change these values as the step does.

    A random op draws the same numbers as in the step of this number under any placement.
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
    """A step on a copy of its module in this host's memory, to be run
    once, before the placed one changes the module.
    """

    def __init__(
        self, step: TorchStep | TorchInference, traced: TracedStep, problem: Problem, plan: ExecutionPlan
    ) -> None:
        self._step, self._traced = step, traced
        self._draws = any(map(is_random, traced.trace.graph.nodes))
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
        """What the step makes and leaves: gradients or outputs, and buffers.

        `results` reads them out of the values of the trace's nodes; `number` is that of the step, for what it draws.
        """
        module = copy.deepcopy(self._step.module).to("cpu")
        inputs = [value.detach().to("cpu", copy=True) for value in inputs]
        if not self._draws:
            with uncompiled():
                values = (
                    _trained(self._step, module, inputs)
                    if isinstance(self._step, TorchStep)
                    else _inferred(module, self._step, inputs)
                )
        else:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                values = results(run_trace(self._traced, self._held(module, inputs), number, torch.device("cpu")))
        return as_outputs(values, module)

    def check(self, placed: Outputs, expected: Outputs) -> None:
        """Raises MeasurementError(wrong_output) where a placed call
        differs from the unplaced one by more than rounding.
        """
        sizes = {
            name: float(np.abs(value).max(initial=0))
            for name, value in expected.variables.items()
            if name.startswith(GRADIENT)
        }
        least = dict.fromkeys(sizes, NOISE * max(sizes.values(), default=0.0))
        checked(placed, expected, "the traced step" if self._draws else "eager PyTorch", least)

    def _held(self, module: nn.Module, inputs: Sequence[Tensor]) -> dict[Node, Tensor]:
        trace, given = self._traced.trace, iter(inputs)
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        nodes = [node for node in trace.graph.nodes if node.op == "placeholder"]
        held = {
            node: next(given) if argument.role == "input" else tensors[argument.name].detach()
            for node, argument in zip(nodes, trace.arguments, strict=True)
        }
        return held | {
            node: trace.constants[node.target].clone() for node in trace.graph.nodes if node.op == "get_attr"
        }


def as_outputs(values: Values, module: nn.Module) -> Outputs:
    """What a call made, with the module's buffers after it, to be compared."""
    named = dict(values) | {f"buffer {name}": value for name, value in module.named_buffers()}
    return Outputs((), {name: _array(value) for name, value in named.items()})


def _trained(step: TorchStep, module: nn.Module, inputs: Sequence[Tensor]) -> Values:
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    with torch.enable_grad():
        loss = step.loss_of(module, inputs)
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    named_gradients = {
        f"{GRADIENT}{name}": gradient for name, gradient in zip(trained, gradients, strict=True) if gradient is not None
    }
    return {"loss": loss} | named_gradients


def _inferred(module: nn.Module, step: TorchInference, inputs: Sequence[Tensor]) -> Values:
    positional, named = ExampleInputs(step.inputs).call(inputs)
    with evaluating(module), torch.no_grad():
        return {f"output {number}": output for number, output in enumerate(tensors_in(module(*positional, **named)))}


def _array(tensor: Tensor) -> np.ndarray:
    dense = tensor.detach().cpu()
    dense = dense if dense.layout is torch.strided else dense.to_dense()
    small = dense.dtype.is_floating_point and dense.dtype is not torch.float64
    return (dense.double() if small else dense.resolve_conj().resolve_neg()).numpy()


def _peak_bytes(problem: Problem) -> int:
    """What the whole step takes of one memory, as the simulator counts."""
    (result,) = simulate(problem, [Placement(np.zeros(problem.graph.num_ops, dtype=np.int32))])
    return 0 if result.peak_memory_bytes is None else int(result.peak_memory_bytes.max())
