"""A PyTorch training step as a `Workload`: traced once, run by an executor of its devices' kind, compared with eager PyTorch."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from gnnplace.cluster import Device
from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.pinned import Worker, answers
from gnnplace.execution.torch_links import link_samples
from gnnplace.execution.torch_processes import TorchProcesses
from gnnplace.execution.torch_values import Node, is_random
from gnnplace.execution.workload import LINK_SIZES_BYTES, Outputs, PlacedStep, Plan
from gnnplace.frontends.torch_step import TorchStep
from gnnplace.frontends.torch_trace import SGD_RATE, Trace
from gnnplace.measured_costs import LinkSample

STATE_NAMES = {"adam": ("exp_avg", "exp_avg_sq", "step"), "sgd": ()}


class TorchWorkload:
    """A step whose module and inputs hold real values. Raises ValueError where they don't, or the step can't be traced."""

    def __init__(self, step: TorchStep, name: str) -> None:
        torch.set_num_threads(1)  # and so without threads of its own, which a fork would lose
        self._step, self._traced = step, step.traced(name)
        self.graph = self._traced.graph
        self._held, self._names = _held(step, self._traced.trace)
        self._loss = _loss(self._traced.trace.graph)
        self._random = any(map(is_random, self._traced.trace.graph.nodes))

    def start(self, plan: Plan) -> PlacedStep:
        """Starts the step where the plan says."""
        kinds = {device.kind for device in plan.devices}
        if kinds == {"cpu"}:
            return TorchProcesses(self._traced, plan, self._held, self._names, self._loss)
        raise MeasurementError("unsupported", f"devices of kinds {', '.join(sorted(kinds))}: only CPU devices can be measured")

    def unplaced(self, steps: int) -> tuple[Outputs, str]:
        """The steps as eager PyTorch runs them; the trace itself, op after op, where the step draws random numbers."""
        life, what = (self._serve_trace, "the traced step") if self._random else (self._serve_eager, "eager PyTorch")
        worker = Worker(what, None, None, life)
        try:
            worker.send(steps)
            (outputs,) = answers([worker])
        finally:
            worker.kill()
        return outputs, what

    def links(self, devices: tuple[Device, Device]) -> tuple[LinkSample, ...]:
        """Transfers from one CPU device to another."""
        if {device.kind for device in devices} != {"cpu"}:
            raise MeasurementError("unsupported", f"a link from {devices[0].name} to {devices[1].name}: only CPU devices can be measured")
        return link_samples(LINK_SIZES_BYTES)

    def _serve_eager(self, connection: Connection) -> None:
        module, trained = self._step.module, [p for p in self._step.module.parameters() if p.requires_grad]
        if self._step.optimizer == "sgd":
            optimizer: torch.optim.Optimizer = torch.optim.SGD(trained, lr=SGD_RATE)
        else:
            optimizer = torch.optim.Adam(trained, fused=True)
        losses = []
        for _ in range(connection.recv()):
            optimizer.zero_grad()
            loss = self._step.loss(module, *self._step.inputs)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        named = dict(module.named_parameters())
        variables = named | dict(module.named_buffers())
        for name, parameter in named.items():
            variables |= {f"{name}/{key}": value for key, value in optimizer.state[parameter].items() if isinstance(value, Tensor)}
        connection.send(Outputs(tuple(losses), {name: value.detach().numpy() for name, value in variables.items()}))

    def _serve_trace(self, connection: Connection) -> None:
        losses = []
        for step in range(1, connection.recv() + 1):
            values: dict[Node, Any] = {node: value.detach() for node, value in self._held.items()}
            for node in self._traced.trace.graph.nodes:
                if node.op == "call_function":
                    if is_random(node):
                        torch.manual_seed(seed(step, self._traced.op_of[node], self.graph.num_ops))
                    arguments, named = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                    values[node] = node.target(*arguments, **named)
            losses.append(values[self._loss].item())
        connection.send(Outputs(tuple(losses), {name: self._held[node].detach().numpy() for node, name in self._names.items()}))


def seed(step: int, op: int, num_ops: int) -> int:
    """What an op that draws random numbers is seeded with in a step: the same wherever it stands."""
    return step * num_ops + op


def _held(step: TorchStep, trace: Trace) -> tuple[dict[Node, Tensor], dict[Node, str]]:
    """The value of each node that exists before the step, and the names of those that a step changes."""
    module, state = step.module, STATE_NAMES[step.optimizer]
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    inputs, seen = iter(step.inputs), dict.fromkeys(tensors, 0)
    held: dict[Node, Tensor] = {}
    names: dict[Node, str] = {}
    for node, argument in zip((node for node in trace.graph.nodes if node.op == "placeholder"), trace.arguments, strict=True):
        match argument.role:
            case "input":
                held[node] = next(inputs)
            case "state":
                names[node] = f"{argument.name}/{state[seen[argument.name]]}"
                held[node] = torch.zeros(node.meta["val"].shape, dtype=node.meta["val"].dtype)
                seen[argument.name] += 1
            case _:
                held[node], names[node] = tensors[argument.name], argument.name
    held |= {node: trace.constants[node.target] for node in trace.graph.nodes if node.op == "get_attr"}
    for node, value in held.items():
        if value.is_meta:
            raise ValueError(f"{names.get(node, node.name)}: lies on the meta device; a step that is measured needs values")
    return held, names


def _loss(graph: torch.fx.Graph) -> Node:
    (loss,) = graph.output_node().all_input_nodes
    return loss
