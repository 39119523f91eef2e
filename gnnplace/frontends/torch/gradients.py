"""A training step without its update: the loss and the gradient of each parameter that has one, for an optimiser in
somebody else's hands.

It is the step of plain SGD, whose updates show the gradients, with these as results in the place of the updates. All
other ops are those of the step with any optimiser, by the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from gnnplace.frontends.torch import updates  # noqa: F401, whose op is one of those below
from gnnplace.frontends.torch.builder import TracedStep, traced_step
from gnnplace.frontends.torch.scopes import scope_of
from gnnplace.frontends.torch.step import TorchStep

Node = torch.fx.Node
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
