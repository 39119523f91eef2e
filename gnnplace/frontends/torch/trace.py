"""Traces one training step of a PyTorch module (a `FlatStep`) into one flat graph of ATen calls.

Fake tensors need no memory and no arithmetic. Every node carries its scope.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from gnnplace.frontends.torch.buffers import shares, view_of
from gnnplace.frontends.torch.calls import call_of, tensors
from gnnplace.frontends.torch.flat_step import Argument, FlatStep, Loss, Updating, layers_of
from gnnplace.frontends.torch.inputs import Inputs, uncompiled
from gnnplace.frontends.torch.known_values import KnownValues, Sizes
from gnnplace.frontends.torch.recurrences import Recurrences
from gnnplace.frontends.torch.refusals import check_built, check_strided, explained, silenced
from gnnplace.frontends.torch.value_sizes import ValueDependentSizes
from gnnplace.frontends.torch.versions import reread_after_writes

NO_WORK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh_copy")


@dataclass(frozen=True)
class Trace:
    """The traced step."""

    graph: torch.fx.Graph
    arguments: tuple[Argument, ...]  # in the order of the graph's placeholders
    layers: dict[str, tuple[str, ...]]  # the layers that own each parameter and buffer
    constants: dict[str, Tensor]  # tensors within the step, by the target of their `get_attr` node
    sizes: ValueDependentSizes | None = None  # what the step takes from the values of inputs and buffers


def trace(module: nn.Module, loss: Loss, inputs: Inputs, updating: Updating, sizes: Sizes = None) -> Trace:
    """Traces `loss(module, *inputs)`, or `loss(module, **inputs)` for a mapping, its gradient and all updates.

    Raises ValueError if the step fails without values, if the loss is not a scalar or depends on no parameter, and for
    an optimiser that can't update the module (for sparse embeddings, any but plain SGD).
    """
    check_built(module)
    step = FlatStep(module, loss, inputs, updating)
    with uncompiled(), KnownValues(sizes) as values, Recurrences(), silenced():
        fakes = tuple(map(fake, step.tensors))
        values.hold(fakes, step.tensors, step.arguments)
        try:
            program = make_fx(step.run, tracing_mode="real")(*fakes)
        except ValueError:
            raise
        except Exception as error:  # the module may raise anything
            raise ValueError(explained(error, sizes)) from error
    return trace_of(program, step.arguments, module, values.sizes())


def trace_of(
    program: torch.fx.GraphModule,
    arguments: tuple[Argument, ...],
    module: nn.Module,
    sizes: ValueDependentSizes | None = None,
) -> Trace:
    """The trace of a module that make_fx has traced, without redundant views and profiler calls.

    `arguments` are those of the placeholders.
    """
    _drop_profiling(program.graph)
    for node in program.graph.nodes:
        for tensor in tensors(node.meta.get("val")):
            check_strided(f"module: {node.name}", tensor)
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            advice = (
                "take scaled_dot_product_attention"
                if "flex_attention" in str(node.target)
                else "decide by plain Python values or with torch.where, and loop in Python"
            )
            raise ValueError(
                f"module: {node.name}: {node.target} runs functions as one op, and such ops have no cost; {advice}"
            )
    _fold_views(program.graph)
    reread_after_writes(program.graph)
    _drop_artefacts(program.graph)
    constants = {node.target: getattr(program, node.target) for node in program.graph.nodes if node.op == "get_attr"}
    return Trace(program.graph, arguments, layers_of(module), constants, sizes)


def _drop_profiling(graph: torch.fx.Graph) -> None:
    """Removes the calls of `torch.profiler.record_function`, the ends before the beginnings, whose results they use."""
    calls = [
        node
        for node in graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "profiler"
    ]
    for node in reversed(calls):
        graph.erase_node(node)


def _fold_views(graph: torch.fx.Graph) -> None:
    """Replaces a view that equals an earlier tensor (`detach`, a transpose of a transpose) by that tensor."""
    seen: dict[tuple[object, ...], torch.fx.Node] = {}
    for node in graph.nodes:
        tensor = node.meta.get("val")
        if not isinstance(tensor, Tensor):
            continue
        view = view_of(tensor)
        pure = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable
        # an empty view may have a new storage or that of its source, depending on torch's cache of fake tensors
        if pure and node.target.is_view and tensor.numel() == 0:
            source = node.all_input_nodes[0]
            if view_of(source.meta["val"])[1:] == view[1:]:
                seen.setdefault(view, source)
        if pure and view in seen:
            node.replace_all_uses_with(seen[view])
        else:
            seen[view] = node  # the output of an op that writes in place replaces the earlier tensor
    _drop_artefacts(graph)


def _drop_artefacts(graph: torch.fx.Graph) -> None:
    """Removes what no node reads and is no work: views, memory that is only allocated, constants.

    An op that computes stays without a reader, since eager PyTorch runs it, too.
    """

    def is_kept(node: torch.fx.Node) -> bool:
        call = call_of(node)
        if node.is_impure() or call is None:
            return bool(node.is_impure())
        computes = any(not any(shares(output, given) for given in call.inputs) for output in tensors(call.outputs))
        return computes and call.base not in NO_WORK

    graph.eliminate_dead_code(is_kept)


def fake(tensor: Tensor) -> Tensor:
    """A fake tensor on the CPU with the shape, strides and dtype of a tensor, which may be on `meta` or fake itself.

    It is a leaf, and requires a gradient if the tensor does.
    """
    empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return empty.requires_grad_(tensor.requires_grad)
