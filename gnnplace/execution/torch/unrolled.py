"""The trace of a step of several micro-batches: the calls of each, the sums of their gradients, and one update.

It is made of the trace of one micro-batch, and its ops are those of the graph that `micro_batches` makes. The gradient
of each loss begins with 1 / M, which is the gradient of its division by M.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from operator import getitem
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Int32
from torch import Tensor

from gnnplace.execution.torch.values import Node
from gnnplace.frontends.torch.buffers import Ref
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.flat_step import Argument
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.isolation.outcome import MeasurementError

_aten = torch.ops.aten
BACKWARD = ("backward_data", "backward_weight")


def unrolled(traced: TracedStep, graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> TracedStep:
    """The step of all micro-batches of `graph`, from that of one; its ops stand on these devices.

    The trace returns the loss of each micro-batch, divided by their number. Sums are in place where the graph says so
    and their buffers stand on one device. Raises MeasurementError(unsupported) for a sparse gradient and for a gradient
    that is computed from the loss.
    """
    return traced if graph.copies is None else _Unrolled(traced, graph, device).step()


class _Unrolled:
    """A trace that grows op by op. `_new[node, m]` is a node's copy for micro-batch m, `NONE` for what runs once."""

    def __init__(self, traced: TracedStep, graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> None:
        assert graph.copies is not None
        self._traced, self._graph, self._device, self._copies = traced, graph, device, graph.copies
        self._trace = torch.fx.Graph()
        self._new: dict[tuple[Node, int], Node] = {}
        self._sums: dict[Node, Node] = {}
        self._means: dict[int, Node] = {}
        self._arguments: list[Argument] = []
        self._op_of: dict[Node, int] = {}
        self._in_place: dict[Ref, list[int]] = defaultdict(list)
        old = traced.trace.graph
        self._loss: Node = old.output_node().all_input_nodes[0]
        places = [node for node in old.nodes if node.op == "placeholder"]
        self._argument = dict(zip(places, traced.trace.arguments, strict=True))
        self._nodes: dict[int, list[Node]] = defaultdict(list)
        for node in old.nodes:
            if node in traced.op_of:
                self._nodes[traced.op_of[node]].append(node)

    def step(self) -> TracedStep:
        """The step."""
        copies = self._copies
        for op in self._graph.order.tolist():
            if copies.added[op]:
                self._add(op)
            else:
                for node in self._nodes[int(copies.source[op])]:
                    self._copy(node, int(copies.micro_batch[op]), op)
        self._trace.output([self._means[copy] for copy in range(copies.micro_batches)])
        trace = replace(self._traced.trace, graph=self._trace, arguments=tuple(self._arguments))
        return TracedStep(self._graph, trace, MappingProxyType(self._op_of), MappingProxyType(self._written()))

    def _copy(self, node: Node, copy: int, op: int) -> None:
        """Adds the copy of a node, and what picks its outputs."""
        if self._loss in node.all_input_nodes and self._graph.phase[op] in BACKWARD:
            new = self._first_gradient(node, copy)
        else:
            new = self._trace.node_copy(node, lambda source: self._input(source, copy))
        if node.op == "placeholder":
            argument = self._argument[node]
            name = f"{argument.name}@{copy}" if argument.role == "input" and copy != NONE else argument.name
            self._arguments.append(replace(argument, name=name))
        self._new[node, copy], self._op_of[new] = new, op
        for pick in [user for user in node.users if user.target is getitem]:
            self._new[pick, copy] = self._trace.node_copy(pick, lambda _: new)

    def _first_gradient(self, node: Node, copy: int) -> Node:
        """The gradient of a micro-batch's own loss: 1 / M."""
        if node.target is not _aten.ones_like.default:
            _refuse(f"{node.name!r} computes a gradient from the loss, which is divided by the number of micro-batches")
        new = self._trace.call_function(
            _aten.full_like.default, (self._means[copy], 1 / self._copies.micro_batches), dict(node.kwargs)
        )
        new.meta = dict(node.meta)
        return new

    def _input(self, source: Node, copy: int) -> Node:
        """What a copy reads: the copy for its micro-batch, what runs once, or the sum over micro-batches."""
        for key in ((source, copy), (source, NONE)):
            if key in self._new:
                return self._new[key]
        if source in self._sums:
            return self._sums[source]
        if (source, 0) in self._new:
            return self._total(source)
        assert source not in self._traced.op_of and source.target is not getitem  # counts the optimiser's steps
        self._new[source, NONE] = self._trace.node_copy(source, lambda earlier: self._input(earlier, NONE))
        return self._new[source, NONE]

    def _total(self, source: Node) -> Node:
        """The sum of scalars, which belongs to the op that reads them."""
        value: Tensor = source.meta["val"]
        if not (value.is_floating_point() or value.is_complex()):
            _refuse(f"an update reads {source.name!r}, whole numbers of each micro-batch")
        parts = [self._new[source, copy] for copy in range(self._copies.micro_batches)]
        total = self._trace.call_function(_added, tuple(parts))
        total.meta = dict(source.meta)
        return total

    def _add(self, op: int) -> None:
        """Adds the division of a loss, or the sum of a tensor and that of the micro-batches before."""
        graph, copies, copy = self._graph, self._copies, int(self._copies.micro_batch[op])
        if graph.kind[op] == "concat":
            _refuse(f"op {graph.op_names[op]!r} joins the rows of a sparse gradient")
        edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
        (edge,) = edges[(copies.micro_batch[graph.edge_src[edges]] == copy) & ~copies.added[graph.edge_src[edges]]]
        source = self._output(int(copies.source[op]), int(graph.edge_output[edge]))
        one = self._new[source, copy]
        if len(edges) == 1:
            new = self._means[copy] = self._call(_aten.div.Tensor, (one, copies.micro_batches), one)
        else:
            total = self._sums.get(source) or self._new[source, 0]
            root = self._buffer(op)
            new = self._sums[source] = self._call(
                _aten.add.Tensor if root is None else _aten.add_.Tensor, (total, one), total, root is not None
            )
            if root is not None:
                self._in_place[root].append(op)
        self._op_of[new] = op

    def _output(self, op: int, index: int) -> Node:
        """The node of an output of the graph of one micro-batch."""
        node = next(node for node in self._nodes[op] if node.op == "call_function" or len(self._nodes[op]) == 1)
        picks = [user for user in node.users if user.target is getitem]
        return next((pick for pick in picks if pick.args[1] == index), node)

    def _call(self, target: Any, arguments: tuple[Any, ...], like: Node, in_place: bool = False) -> Node:
        new = self._trace.call_function(target, arguments)
        new.meta = dict(like.meta)
        if not in_place:
            new.meta["val"] = torch.empty_like(like.meta["val"])
        return new

    def _buffer(self, op: int) -> Ref | None:
        """The buffer that a sum is written to, if it and all views of it stand on the sum's device."""
        graph, output = self._graph, int(self._graph.output_ptr[op])
        while graph.output_alias[output] != NONE:
            output = int(graph.output_alias[output])
            if self._device[graph.output_op[output]] != self._device[op]:
                return None
        root = int(graph.output_op[output])
        return None if root == op else (root, output - int(graph.output_ptr[root]))

    def _written(self) -> dict[Ref, tuple[int, ...]]:
        """The ops that write each buffer in place."""
        copies, written = defaultdict[int, dict[int, int]](dict), defaultdict[Ref, list[int]](list, self._in_place)
        for op in np.flatnonzero(~self._copies.added).tolist():
            copies[int(self._copies.source[op])][int(self._copies.micro_batch[op])] = op
        for (root, output), writers in self._traced.written.items():
            for copy, op in copies[root].items():
                for writer in writers:
                    ops = copies[writer]
                    written[op, output] += ops.values() if copy == NONE else [ops[copy]] if copy in ops else []
        return {ref: tuple(writers) for ref, writers in written.items()}


def _added(*scalars: Tensor) -> Tensor:
    return sum(scalars[1:], scalars[0])


def _refuse(reason: str) -> NoReturn:
    raise MeasurementError("unsupported", f"micro_batches: {reason}, so that it can't be run, only planned")
