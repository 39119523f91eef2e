"""The trace of a step of several micro-batches, in any form: the calls of each, what gathers them, and one update.

It is made of the trace of one micro-batch. Its ops are those of the graph of the step, whose edges say what each of
them reads: a copy for its micro-batch or replica, a sum, what a ring has reduced, a fetch. The gradient of each loss
begins with 1 / M, which is the gradient of its division by M.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import getitem
from types import MappingProxyType
from typing import Any, NoReturn, cast

import numpy as np
import torch
from jaxtyping import Int32
from torch import Tensor

from gnnplace.execution.torch.gathered import Gathered, Made, added
from gnnplace.execution.torch.values import Node
from gnnplace.frontends.torch.buffers import Ref
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.flat_step import Argument
from gnnplace.graph import CONTROL, NONE, ComputationGraph, Copies
from gnnplace.isolation.outcome import MeasurementError

_aten = torch.ops.aten
BACKWARD = ("backward_data", "backward_weight")
Reads = Mapping[Ref, Sequence[Ref]]  # by output of the graph of one micro-batch: the outputs that are read in its place


def unrolled(traced: TracedStep, graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> TracedStep:
    """The step of all micro-batches of `graph`, from that of one; its ops stand on these devices.

    The trace returns the loss of each micro-batch, divided by their number, and the gradient of each input for each
    micro-batch in turn, as that of one returns it. Sums are in place where the graph says so
    and their buffers stand on one device. Raises MeasurementError(unsupported) for a gradient that is computed from
    the loss, and for sizes of rows within the update of a sparse table.
    """
    return traced if graph.copies is None else _Unrolled(traced, graph, graph.copies, device).step()


class _Unrolled:
    """A trace that grows op by op. `_new[node, op]` is the copy of a node that op of the step runs."""

    def __init__(
        self, traced: TracedStep, graph: ComputationGraph, copies: Copies, device: Int32[np.ndarray, " ops"]
    ) -> None:
        self._traced, self._graph, self._device, self._copies = traced, graph, device, copies
        self._trace = torch.fx.Graph()
        self._new: dict[tuple[Node, int], Node] = {}
        self._made: dict[Ref, Made] = {}
        self._counts: dict[tuple[Node, int], Node] = {}
        self._means: dict[int, Node] = {}
        self._arguments: list[Argument] = []
        self._op_of: dict[Node, int] = {}
        self._in_place: dict[Ref, list[int]] = defaultdict(list)
        self._grown: set[int] = set()  # ops with rows of all micro-batches
        old = traced.trace.graph
        self._loss, *self._of_inputs = cast(Sequence[Node], old.output_node().args[0])
        places = [node for node in old.nodes if node.op == "placeholder"]
        self._argument = dict(zip(places, traced.trace.arguments, strict=True))
        self._nodes: dict[int, list[Node]] = defaultdict(list)
        for node in old.nodes:
            if node in traced.op_of:
                self._nodes[traced.op_of[node]].append(node)
        self._copies_of: dict[int, list[int]] = defaultdict(list)
        for op in np.flatnonzero(~copies.added).tolist():
            self._copies_of[int(copies.source[op])].append(op)
        self._gathered = Gathered(graph, self._call, self._copy_of, self._made)

    def step(self) -> TracedStep:
        """The step."""
        for op in self._graph.order.tolist():
            reads = self._reads(op)
            if self._copies.added[op]:
                self._add(op, reads)
                continue
            given: dict[Ref, list[Ref]] = defaultdict(list)
            for ref in reads:
                (of,) = self._gathered.of(ref)
                given[of].append(ref)
            for node in self._nodes[int(self._copies.source[op])]:
                self._copy(node, op, given)
        means = [mean for _, mean in sorted(self._means.items())]
        self._trace.output([*means, *(copy for node in self._of_inputs for copy in self._by_micro_batch(node))])
        trace = replace(self._traced.trace, graph=self._trace, arguments=tuple(self._arguments))
        return TracedStep(self._graph, trace, MappingProxyType(self._op_of), MappingProxyType(self._written()))

    def _by_micro_batch(self, node: Node | None) -> list[Node | None]:
        """The copies of a node for all micro-batches."""
        if node is None or (of := self._ref(node)) is None:
            return [None] * self._copies.micro_batches
        return [self._new[node, op] for op in self._copies_of[of[0]]]

    def _reads(self, op: int) -> list[Ref]:
        """The outputs that an op reads."""
        graph = self._graph
        edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
        edges = edges[graph.edge_output[edges] != CONTROL]
        return list(zip(graph.edge_src[edges].tolist(), graph.edge_output[edges].tolist(), strict=True))

    def _copy(self, node: Node, op: int, given: Reads) -> None:
        """Adds the copy of a node, and what picks its outputs."""
        if self._loss in node.all_input_nodes and self._graph.phase[op] in BACKWARD:
            new = self._first_gradient(node, given)
        else:
            new = self._trace.node_copy(node, lambda source: self._input(source, op, given))
        if node.op == "placeholder":
            argument = self._argument[node]
            self._arguments.append(replace(argument, copy=self._tag(argument, op)))
        self._new[node, op], self._op_of[new] = new, op
        picks = [user for user in node.users if user.target is getitem]
        for pick in picks:
            self._new[pick, op] = self._trace.node_copy(pick, lambda _: new)
        if any(source in self._grown for refs in given.values() for source, _ in refs):
            self._grow(op, new, [self._new[pick, op] for pick in picks])

    def _tag(self, argument: Argument, op: int) -> str:
        """How the name of a copy of an argument ends: with its micro-batch, or its replica if that is not the first."""
        copies, copy = self._copies, int(self._copies.micro_batch[op])
        if argument.role == "input":
            return "" if copy == NONE else f"@{copy}"
        return "" if op == self._copies_of[int(copies.source[op])][0] else f"@r{copies.replica[op]}"

    def _first_gradient(self, node: Node, given: Reads) -> Node:
        """The gradient of a micro-batch's own loss: 1 / M."""
        if node.target is not _aten.ones_like.default:
            _refuse(f"{node.name!r} computes a gradient from the loss, which is divided by the number of micro-batches")
        ((mean,),) = given.values()
        new = self._trace.call_function(
            _aten.full_like.default, (self._made[mean].node, 1 / self._copies.micro_batches), dict(node.kwargs)
        )
        new.meta = dict(node.meta)
        return new

    def _input(self, source: Node, op: int, given: Reads) -> Node:
        """What an op reads in place of a node: the copy, or the sum, to which an edge of the step leads."""
        if (of := self._ref(source)) is None:
            return self._count(source, op, given)
        if not (refs := given.get(of, ())):
            return self._new[source, self._beside(of[0], op)]
        nodes = [self._made[ref].node if ref in self._made else self._new[source, ref[0]] for ref in refs]
        return nodes[0] if len(nodes) == 1 else self._total(source, nodes)

    def _ref(self, node: Node) -> Ref | None:
        """The output of the graph of one micro-batch that is a node's value; None if it belongs to no op."""
        parent, index = node.args if node.target is getitem else (node, 0)
        assert isinstance(parent, torch.fx.Node) and isinstance(index, int)
        op = self._traced.op_of.get(parent)
        return None if op is None else (op, index)

    def _beside(self, source: int, op: int) -> int:
        """The copy of an op on the replica of another, or the first: of the optimiser's state, which no edge shows."""
        copies, replica = self._copies_of[source], self._copies.replica[op]
        return next((copy for copy in copies if self._copies.replica[copy] == replica), copies[0])

    def _count(self, node: Node, op: int, given: Reads) -> Node:
        """A node that belongs to no op: it counts the optimiser's steps."""
        key = node, int(self._copies.replica[op])
        if key not in self._counts:
            self._counts[key] = self._trace.node_copy(node, lambda earlier: self._input(earlier, op, given))
        return self._counts[key]

    def _total(self, source: Node, parts: Sequence[Node]) -> Node:
        """The sum of scalars of micro-batches, which belongs to the op that reads them."""
        value: Tensor = source.meta["val"]
        if not (value.is_floating_point() or value.is_complex()):
            _refuse(f"an update reads {source.name!r}, whole numbers of each micro-batch")
        total = self._trace.call_function(added, tuple(parts))
        total.meta = dict(source.meta)
        return total

    def _add(self, op: int, reads: Sequence[Ref]) -> None:
        """Adds what gathers copies: a sum, a mean, rows joined, a part of a ring, a fetch."""
        root = self._buffer(op) if self._graph.kind[op] == "sum" and len(reads) > 1 else None
        outputs = self._gathered.add(op, reads, root is not None)
        if root is not None:
            self._in_place[root].append(op)
        for index, output in enumerate(outputs):
            self._made[op, index] = output
            call = output.node.args[0] if output.node.target is getitem else output.node
            assert isinstance(call, torch.fx.Node)
            self._op_of[call] = op
        if self._graph.kind[op] == "sum" and len(reads) == 1:
            self._means[int(self._copies.micro_batch[op])] = outputs[0].node
        if self._graph.kind[op] == "concat":
            self._grown.add(op)

    def _copy_of(self, ref: Ref) -> Node:
        """The node of an output of a copy."""
        op, index = ref
        nodes = self._nodes[int(self._copies.source[op])]
        node = next(each for each in nodes if each.op == "call_function" or len(nodes) == 1)
        picks = [user for user in node.users if user.target is getitem]
        return self._new[next((pick for pick in picks if pick.args[1] == index), node), op]

    def _call(self, target: Any, arguments: tuple[Any, ...], like: Node) -> Node:
        """A call that is added, with the scope of another."""
        new = self._trace.call_function(target, arguments)
        new.meta = dict(like.meta) | {"val": _value(new)}
        return new

    def _grow(self, op: int, call: Node, picks: Sequence[Node]) -> None:
        """Computes anew the sizes of a call that reads the rows of all micro-batches."""
        before = call.meta["val"]
        try:
            call.meta["val"] = value = _value(call)
        except Exception as error:  # PyTorch raises anything for sizes that don't fit
            cause = " ".join(str(error).split())[:120]
            _refuse(f"op {self._graph.op_names[op]!r} updates by rows of a fixed number ({cause})")
        for pick in picks:
            pick.meta["val"] = _value(pick)
        shapes = [
            [each.shape for each in (values if isinstance(values, tuple | list) else [values]) if each is not None]
            for values in (before, value)
        ]
        if shapes[0] != shapes[1]:
            self._grown.add(op)

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
        graph, written = self._graph, defaultdict[Ref, list[int]](list, self._in_place)
        for (source, output), writers in self._traced.written.items():
            for writer in (copy for each in writers for copy in self._copies_of[each]):
                read = {int(graph.output_root[graph.output_ptr[op] + index]) for op, index in self._reads(writer)}
                roots = [(int(graph.output_op[each]), each) for each in read]
                for root, each in roots:
                    is_copy = not self._copies.added[root] and int(self._copies.source[root]) == source
                    if is_copy and each - int(graph.output_ptr[root]) == output:
                        written[root, output].append(writer)
        return {ref: tuple(writers) for ref, writers in written.items()}


def _value(call: Node) -> Any:
    """The value of a call, as fake tensors."""
    arguments, named = torch.fx.node.map_arg((call.args, call.kwargs), lambda node: node.meta["val"])
    assert callable(call.target)
    return call.target(*arguments, **named)


def _refuse(reason: str) -> NoReturn:
    raise MeasurementError("unsupported", f"micro_batches: {reason}, so that it can't be run, only planned")
