"""A step without its updates, whose results are the gradients: for an optimiser of the module's owner.

It is traced with plain SGD, whose updates show the gradient of each parameter. These gradients become results, and the
updates are removed. All other ops are those of the step with any optimiser, by the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool

from gnnplace.execution.torch.unrolled import unrolled
from gnnplace.execution.torch.values import Node
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch import updates  # noqa: F401, registers update_
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.scopes import scope_of
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.graph import ComputationGraph
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.removal import without_ops

_aten = torch.ops.aten
UPDATES = (_aten._fused_sgd_.default, torch.ops.gnnplace.update_.default, _aten.index_add_.default)


class Rows(NamedTuple):
    """The gradient of one lookup in a sparse embedding: the indices of rows (one dimension), and their gradients."""

    indices: Node
    rows: Node


@dataclass(frozen=True, eq=False)
class GradientStep:
    """A traced step without updates: the nodes of its losses, and those of each parameter's gradient by name.

    There is a loss for each micro-batch, divided by their number. The gradient of a sparse embedding has nodes for each
    lookup. `inputs` are the gradients of inputs that require one, by the number of the input: one for each micro-batch.
    `plan` is that of its ops.
    """

    traced: TracedStep
    plan: ExecutionPlan
    losses: tuple[Node, ...]
    inputs: Mapping[int, tuple[Node, ...]]
    dense: Mapping[str, Node]
    sparse: Mapping[str, tuple[Rows, ...]]


def gradient_step(
    step: TorchStep, name: str, form: Parallelism, planned: Callable[[ComputationGraph], ExecutionPlan]
) -> GradientStep:
    """Traces a step without its updates as a graph named `name`, in a form of its micro-batches.

    `planned` gives the plan of that graph. Raises ValueError if the step can't be traced, MeasurementError as
    `unrolled`.
    """
    one = replace(step, optimizer="sgd", clip_norm=None, clip_value=None).traced(name)
    whole = form.of(one.graph)
    removed = _copies_of(whole, [one.op_of[node] for node in one.trace.graph.nodes if _is_update(node)])
    graph = without_ops(whole, removed)
    plan, device = planned(graph), np.zeros(whole.num_ops, dtype=np.int32)
    device[~removed] = plan.device
    return _reduced(unrolled(one, whole, device), graph, removed, plan, form.micro_batches)


def _is_update(node: Node) -> bool:
    return node.target in UPDATES and scope_of(node).phase == "update"


def _copies_of(whole: ComputationGraph, ops: Sequence[int]) -> Bool[np.ndarray, " ops"]:
    """True for the copies of these ops of one micro-batch in a step."""
    copies = whole.copies
    if copies is None:
        return np.isin(np.arange(whole.num_ops), ops)
    return np.isin(copies.source, ops) & ~copies.added


def _reduced(
    traced: TracedStep,
    graph: ComputationGraph,
    removed: Bool[np.ndarray, " ops"],
    plan: ExecutionPlan,
    micro_batches: int,
) -> GradientStep:
    """The step without its updates, which it reads the gradients from."""
    trace = traced.trace.graph
    changing = [node for node in trace.nodes if node.op == "call_function" and _is_update(node)]
    dense, sparse = _gradients(traced, changing)
    outputs = cast(Sequence[Node | None], trace.output_node().args[0])
    losses, of_inputs = outputs[:micro_batches], outputs[micro_batches:]
    inputs = {
        number: tuple(cast(Sequence[Node], parts))
        for number, parts in enumerate(zip(*[iter(of_inputs)] * micro_batches, strict=True))
        if parts[0] is not None
    }
    pairs = [node for lookups in sparse.values() for rows in lookups for node in rows]
    results = [*losses, *(part for parts in inputs.values() for part in parts), *dense.values(), *pairs]
    trace.output_node().args = (results,)
    for node in reversed(changing):
        trace.erase_node(node)
    number = np.cumsum(~removed) - 1
    op_of = {node: int(number[op]) for node, op in traced.op_of.items() if not removed[op]}
    kept = {ref: [writer for writer in writers if not removed[writer]] for ref, writers in traced.written.items()}
    written = {
        (int(number[op]), output): tuple(number[writers].tolist()) for (op, output), writers in kept.items() if writers
    }
    reduced = TracedStep(graph, traced.trace, MappingProxyType(op_of), MappingProxyType(written))
    return GradientStep(reduced, plan, tuple(cast(Sequence[Node], losses)), inputs, dense, sparse)


def _gradients(traced: TracedStep, changing: Sequence[Any]) -> tuple[dict[str, Node], dict[str, tuple[Rows, ...]]]:
    """The gradients that updates read, of the first replica: dense ones, and rows, by the name of the parameter."""
    dense, sparse = dict[str, Node](), dict[str, tuple[Rows, ...]]()
    placeholders = [node for node in traced.trace.graph.nodes if node.op == "placeholder"]
    arguments = dict(zip(placeholders, traced.trace.arguments, strict=True))
    table_of = dict[Node, Node]()  # the table that an update in place returns
    for node in changing:
        if node.target is _aten.index_add_.default:
            table = table_of[node] = table_of.get(node.args[0], node.args[0])
            if not arguments[table].copy:
                name = arguments[table].name
                sparse[name] = (*sparse.get(name, ()), Rows(node.args[2], node.args[3]))
            continue
        lists = node.target is _aten._fused_sgd_.default  # else of a complex parameter
        parameter, gradient = ((each[0] if lists else each) for each in node.args[:2])
        if not arguments[parameter].copy:  # all replicas have the same
            dense[arguments[parameter].name] = gradient
    return dense, sparse
