"""A PyTorch training step as a `Workload`: traced once, run by an executor, checked by eager PyTorch."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32
from torch import Tensor

from gnnplace.cluster import MAX_BYTES, Device
from gnnplace.costs.measured import LinkSample
from gnnplace.execution.torch import distributed
from gnnplace.execution.torch.links import gpu_link_samples, link_samples
from gnnplace.execution.torch.processes import TorchProcesses
from gnnplace.execution.torch.replicas import ReplicaBuffers, tags
from gnnplace.execution.torch.threads import TorchThreads
from gnnplace.execution.torch.unplaced import run_trace
from gnnplace.execution.torch.unrolled import unrolled
from gnnplace.execution.torch.values import Held, Node, random_nodes
from gnnplace.execution.workload import LINK_SIZES_BYTES, ExecutionPlan, Outputs, RunningStep, refuse
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.inputs import uncompiled
from gnnplace.frontends.torch.optimizer_parts import states
from gnnplace.frontends.torch.optimizers import as_one_kernel, rules
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.frontends.torch.trace import Trace
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.schedules.in_order import in_order
from gnnplace.transformations.parallelism import Parallelism

KINDS = {"cpu", "gpu"}
WARM_STEPS = 2


class TorchWorkload:
    """A step whose module and inputs have values.

    Its graph has one replica with copies together; plans may be of any form of as many micro-batches. Raises ValueError
    if there are no values or if the step can't be traced.
    """

    def __init__(self, step: TorchStep, name: str) -> None:
        torch.set_num_threads(1)  # PyTorch starts no threads, which a fork would lose
        self._step, self._one = step, step.traced(name)
        if self._one.trace.sizes is not None:
            if step.micro_batches > 1:
                raise ValueError("sizes: depend on values, which differ between micro-batches; run one batch")
            self._one.trace.sizes.check_repeatable()
        self.graph = step.batch.step(self._one.graph)
        self.in_form, self.with_workspace = cache(self._in_form), cache(self._measured_workspace)
        self._traced, self._held = self._placed(None, np.zeros(self.graph.num_ops, dtype=np.int32))

    def start(self, plan: ExecutionPlan) -> RunningStep:
        """Starts the step on the plan's devices: on this machine or, under `torchrun`, with the other ranks."""
        check_plan(self.in_form(plan.form), plan)
        traced, held = self._placed(plan.form, plan.device)
        if distributed.launched():
            return distributed.TorchDistributed(traced, plan, held)
        random = [traced.op_of[node] for node in random_nodes(traced.trace.graph)]
        drawing = {plan.devices[plan.device[op]].kind for op in random}
        if "cpu" in drawing and any(device.kind == "gpu" for device in plan.devices):
            reason = (
                "an op that draws random numbers stands on a CPU device beside GPUs, which draw others: "
                "nothing to compare with"
            )
            raise MeasurementError("unsupported", reason)
        return started(traced, plan, held)

    def as_run(self, plan: ExecutionPlan) -> ComputationGraph:
        """The graph in the order of the plan; for CPU devices, with the measured workspace of ops."""
        measured = {device.kind for device in plan.devices} == {"cpu"} and not distributed.launched()
        graph = self.with_workspace(plan.form) if measured else self.in_form(plan.form)
        return in_order(graph, plan.device, plan.order)

    def unplaced(self, steps: int, kind: str = "cpu", form: Parallelism | None = None) -> tuple[Outputs, str]:
        """The steps run by eager PyTorch; if the step draws random numbers, by its trace op by op.

        They run in this process on copies: on a machine with GPUs no backward pass works in a fork of a process that
        has traced a step.
        """
        _check_kinds({kind})
        device, place = torch.device("cuda" if kind == "gpu" else "cpu"), " on a GPU" if kind == "gpu" else ""
        random = random_nodes(self._one.trace.graph)
        run, words = (self._run_trace, "the traced step") if random else (self._run_eager, "eager PyTorch")
        return run(steps, device, form), words + place

    def links(self, devices: tuple[Device, Device]) -> tuple[LinkSample, ...]:
        """Transfers from one device to another."""
        kinds = [device.kind for device in devices]
        _check_kinds(set(kinds))
        if set(kinds) == {"cpu"}:
            return link_samples(self._traced, devices, self._held)
        return gpu_link_samples(LINK_SIZES_BYTES, kinds)

    def _in_form(self, form: Parallelism | None) -> ComputationGraph:
        """The graph of the step in a form. Raises MeasurementError(unsupported) for one of other micro-batches."""
        if form is None or form == Parallelism.in_graph(self.graph):
            return self.graph
        if form.micro_batches != (number := self.graph.micro_batches):
            raise MeasurementError("unsupported", f"micro_batches: {form.micro_batches} is not {number}")
        return form.of(self.graph)

    def _measured_workspace(self, form: Parallelism | None) -> ComputationGraph:
        """The graph with measured workspace: the bytes that each op allocates beyond its outputs in a step on one core.

        Convolutions, for example, copy tensors to another layout.
        """
        graph, core = self.in_form(form), Device("core", "cpu", MAX_BYTES, 1, 1)
        plan = ExecutionPlan((core,), np.zeros(graph.num_ops, dtype=np.int32), graph.order)
        traced, held = self._placed(form, plan.device)
        step = TorchProcesses(traced, plan, held)
        try:
            step.run(WARM_STEPS)
            allocated = step.op_memory()
        finally:
            step.close()
        roots = graph.output_alias == NONE
        outputs = np.bincount(graph.output_op[roots], graph.output_bytes[roots], graph.num_ops).astype(np.int64)
        return replace(graph, workspace_bytes=np.maximum(0, allocated - outputs))

    def _placed(self, form: Parallelism | None, device: Int32[np.ndarray, " ops"]) -> tuple[TracedStep, Held]:
        """The step of all micro-batches whose ops stand on these devices, and the values that exist before it."""
        traced = unrolled(self._one, self.in_form(form), device)
        return traced, _held(self._step, traced.trace)

    def _run_eager(self, steps: int, device: torch.device, form: Parallelism | None) -> Outputs:
        eager = EagerStep(self._step, self.in_form(form), device)
        losses = tuple(eager.run() for _ in range(steps))
        return Outputs(losses, eager.variables())

    def _run_trace(self, steps: int, device: torch.device, form: Parallelism | None) -> Outputs:
        traced, before = self._placed(form, np.zeros(self.in_form(form).num_ops, dtype=np.int32))
        held: dict[Node, Any] = {node: value.detach().to(device, copy=True) for node, value in before.values.items()}
        losses = []
        for step in range(1, steps + 1):
            values = run_trace(traced, held, step, device)
            losses.append(sum(values[loss].item() for loss in before.losses))
        return Outputs(tuple(losses), {name: held[node].cpu().numpy() for node, name in before.names.items()})


class EagerStep:
    """The step in eager PyTorch on one device, on a copy of the module and its optimiser.

    It adds up the gradients of its micro-batches one after another. All replicas have the same parameters; each has
    buffers of its own.
    """

    def __init__(self, step: TorchStep, graph: ComputationGraph, device: torch.device) -> None:
        self._step, self._module = step, copy.deepcopy(step.module).to(device)
        pairs = zip(step.module.parameters(), self._module.parameters(), strict=True)
        twins = {id(theirs): ours for theirs, ours in pairs}
        self._optimizers = [as_one_kernel(optimizer, twins) for optimizer in step.built_optimizers]
        self._micro_batches = [
            [
                part.detach().to(device, copy=True).requires_grad_(whole.requires_grad)
                for part, whole in zip(parts, step.batch.tensors, strict=True)
            ]
            for parts in step.batch.split(step.batch.tensors)
        ]
        self._tags, self._buffers = tags(graph), ReplicaBuffers(graph, self._module)
        trained = rules(step.built_optimizers, step.module)
        self._trained = [parameter for name, parameter in self._module.named_parameters() if name in trained]

    def run(self) -> float:
        """Runs a step and returns its loss, which waits for a GPU."""
        self._module.zero_grad()
        count, losses = self._step.micro_batches, []
        with uncompiled():
            for number, inputs in enumerate(self._micro_batches):
                with self._buffers.of(number):
                    loss = self._step.loss_of(self._module, inputs)
                    losses.append(loss if count == 1 else loss / count)
                    losses[-1].backward()
        if self._step.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._trained, self._step.clip_norm, foreach=False)
        if self._step.clip_value is not None:
            torch.nn.utils.clip_grad_value_(self._trained, self._step.clip_value, foreach=False)
        for optimizer in self._optimizers:
            optimizer.step()
        return sum(loss.item() for loss in losses)

    def variables(self) -> dict[str, Any]:
        """The parameters, buffers and the optimiser's state now, by name."""
        variables = self._buffers.values()
        for name, parameter in self._module.named_parameters():
            tensors = {name: parameter} | {
                f"{name}/{key}": value
                for optimizer in self._optimizers
                for key, value in states(optimizer, parameter).items()
                if isinstance(value, Tensor)
            }
            variables |= {f"{each}{tag}": value for each, value in tensors.items() for tag in self._tags[name]}
        return {name: value.detach().cpu().numpy() for name, value in variables.items()}


def check_plan(graph: ComputationGraph, plan: ExecutionPlan) -> None:
    """Raises MeasurementError(unsupported) for devices that this machine lacks or the graph forbids, PlanError for a
    wrong order.
    """
    _check_kinds({device.kind for device in plan.devices})
    refuse(graph, plan)


def started(traced: TracedStep, plan: ExecutionPlan, held: Held) -> TorchProcesses | TorchThreads:
    """A running step on devices of this machine: processes if all are CPU devices, else threads of this process."""
    on_cores = all(device.kind == "cpu" for device in plan.devices)
    return TorchProcesses(traced, plan, held) if on_cores else TorchThreads(traced, plan, held)


def _check_kinds(kinds: set[str]) -> None:
    """Raises MeasurementError(unsupported) for kinds of devices that PyTorch can't use here."""
    if odd := kinds - KINDS:
        raise MeasurementError(
            "unsupported", f"devices of kind {', '.join(sorted(odd))}: a PyTorch step runs on 'cpu' and 'gpu'"
        )
    if "gpu" in kinds and not torch.cuda.is_available():
        raise MeasurementError("unsupported", "devices of kind gpu, and PyTorch finds no CUDA device here")


def _held(step: TorchStep, trace: Trace) -> Held:
    """The values that exist before the step."""
    tensors = dict(step.module.named_parameters()) | dict(step.module.named_buffers())
    update_rules = rules(step.built_optimizers, step.module)
    state = {name: rule.initial(tensors[name]) for name, rule in update_rules.items()}
    inputs = step.batch.named(step.batch.tensors)
    held: dict[Node, Tensor] = {}
    names: dict[Node, str] = {}
    placeholders = (node for node in trace.graph.nodes if node.op == "placeholder")
    for node, argument in zip(placeholders, trace.arguments, strict=True):
        match argument.role:
            case "input":
                held[node] = inputs[argument.of_step]
            case "state":
                held[node], names[node] = state[argument.name][argument.key], argument.of_step
            case _:
                held[node], names[node] = tensors[argument.name], argument.of_step
    held |= {node: trace.constants[node.target] for node in trace.graph.nodes if node.op == "get_attr"}
    for node, value in held.items():
        if value.is_meta:
            raise ValueError(
                f"{names.get(node, node.name)}: lies on the meta device; a step that is measured needs values"
            )
    losses = trace.graph.output_node().all_input_nodes[: step.micro_batches]
    return Held(held, names, tuple(losses))
