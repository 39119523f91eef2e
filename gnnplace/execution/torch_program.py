"""A traced PyTorch step cut into one program a device: which calls it makes, what it sends, receives and waits for, in order.

What EXECUTION_MODEL.md says of transfers is done here: when an op ends, each of its outputs is sent once to each other device that
has a consumer of it, by output, then by device; a control edge to another device is a signal, left out where something that the
device has received before says so already. Nobody waits for a device that could wait for it in turn: all programs follow one
topological order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from operator import getitem

import numpy as np
import torch
from jaxtyping import Int32
from torch import Tensor

from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.torch_values import Node, as_sent
from gnnplace.execution.workload import Plan
from gnnplace.frontends.torch import TracedStep
from gnnplace.graph import CONTROL, NONE


@dataclass(frozen=True, eq=False)
class Message:
    """An output on its way to one other device: the value of `node`, which looks like `tensor` (a fake one, as it is sent)."""

    number: int
    node: Node
    src: int
    dst: int
    tensor: Tensor

    @property
    def bytes(self) -> int:
        """What is sent."""
        return self.tensor.untyped_storage().nbytes()


@dataclass(frozen=True)
class Signal:
    """A control edge on its way to one other device."""

    number: int
    src: int
    dst: int


@dataclass(frozen=True)
class Call:
    """Runs the op of a node. `first` are nodes of no op of their own (an optimiser's count of steps) that run before it; `picks` take
    single outputs out of what it returns.
    """

    op: int
    first: tuple[Node, ...]
    node: Node
    picks: tuple[Node, ...]


@dataclass(frozen=True)
class Send:
    what: Message | Signal


@dataclass(frozen=True)
class Receive:
    what: Message | Signal


Instruction = Call | Send | Receive


@dataclass(frozen=True, eq=False)
class Program:
    """What one device does in a step. `held` are the nodes whose values it has before: its variables, state, inputs, constants."""

    device: int
    held: tuple[Node, ...]
    instructions: tuple[Instruction, ...]


def programs(step: TracedStep, plan: Plan) -> tuple[Program, ...]:
    """One program for each device of the plan. Numbers of messages and signals are distinct over all of them.

    Raises MeasurementError(unsupported) where a buffer would be sent before a writer changes it for a later reader elsewhere.
    """
    writer = _Writer(step, plan)
    for op in plan.order.tolist():
        writer.add(op)
    return writer.finished()


class _Writer:
    """Writes all programs at once, op by op in the plan's order."""

    def __init__(self, step: TracedStep, plan: Plan) -> None:
        graph = step.graph
        self._plan, self._graph, self._num_devices = plan, graph, len(plan.devices)
        self._device: list[int] = plan.device.tolist()
        self._op_of = step.op_of
        self._call, self._values, self._held = _nodes(step)
        self._lines: list[list[Instruction]] = [[] for _ in plan.devices]
        self._messages: dict[tuple[Node, int], Message] = {}
        self._arrived: set[tuple[Node, int]] = set()
        self._signals: dict[tuple[int, int], Signal] = {}
        self._waits = _waits(plan, graph.edge_src[graph.edge_output == CONTROL], graph.edge_dst[graph.edge_output == CONTROL])
        self._position = np.argsort(plan.order)
        self._seen = [[NONE] * self._num_devices for _ in plan.devices]  # how far each device knows each other to be
        self._inputs, self._consumers = _data_edges(graph.edge_src, graph.edge_output, graph.edge_dst)
        self._written = _written(step)

    def add(self, op: int) -> None:
        """Receives what the op needs, runs it, sends what it makes."""
        here = self._device[op]
        for source, output in self._inputs[op]:
            if self._device[source] != here:
                self._receive(source, output, op)
        for source in self._waits[op]:
            self._await(source, here)
        if op in self._call:
            self._lines[here].append(self._called(op, self._call[op]))
        self._send(op)

    def finished(self) -> tuple[Program, ...]:
        """The programs, without signals that nobody awaits."""
        awaited = {line.what.number for lines in self._lines for line in lines if isinstance(line, Receive)}
        return tuple(
            Program(
                device,
                tuple(node for node, op in self._held if self._device[op] == device),
                tuple(line for line in lines if not isinstance(line, Send) or line.what.number in awaited),
            )
            for device, lines in enumerate(self._lines)
        )

    def _called(self, op: int, node: Node) -> Call:
        first = (parent for parent in node.all_input_nodes if parent not in self._op_of and parent.target is not getitem)
        return Call(op, tuple(first), node, tuple(user for user in node.users if user.target is getitem))

    def _receive(self, source: int, output: int, op: int) -> None:
        node, here = self._values[source, output], self._device[op]
        self._refuse_stale(source, output, op)
        if (node, here) not in self._arrived:
            self._arrived.add((node, here))
            self._lines[here].append(Receive(self._messages[node, here]))
            self._know(source, here)

    def _await(self, source: int, here: int) -> None:
        """Waits for the end of an op elsewhere, unless its device is known to have got as far."""
        if self._seen[here][self._device[source]] < self._position[source]:
            self._lines[here].append(Receive(self._signals[source, here]))
            self._know(source, here)

    def _know(self, source: int, here: int) -> None:
        there = self._device[source]
        self._seen[here][there] = max(self._seen[here][there], int(self._position[source]))

    def _send(self, op: int) -> None:
        here = self._device[op]
        for output, consumers in sorted(self._consumers[op].items()):
            for there in sorted({self._device[consumer] for consumer in consumers} - {here}):
                self._lines[here].append(Send(self._signal(op, there) if output == CONTROL else self._message(op, output, there)))

    def _signal(self, op: int, there: int) -> Signal:
        signal = self._signals[op, there] = Signal(self._count, self._device[op], there)
        return signal

    def _message(self, op: int, output: int, there: int) -> Message:
        node = self._values[op, output]
        message = self._messages[node, there] = Message(self._count, node, self._device[op], there, as_sent(node.meta["val"]))
        return message

    @property
    def _count(self) -> int:
        return len(self._messages) + len(self._signals)

    def _refuse_stale(self, source: int, output: int, op: int) -> None:
        root = self._graph.output_root[self._graph.output_ptr[source] + output]
        for writer in self._written.get(int(root), ()):
            if self._position[source] < self._position[writer] < self._position[op]:
                names = self._graph.op_names
                reason = f"{names[op]!r} would read elsewhere what {names[writer]!r} has changed in place since {names[source]!r} made it"
                raise MeasurementError("unsupported", reason)


def _nodes(step: TracedStep) -> tuple[dict[int, Node], dict[tuple[int, int], Node], list[tuple[Node, int]]]:
    """The call of each op that has one, the node of each output, and the nodes whose values exist before the step, with their ops."""
    calls, values, held = {}, {}, []
    for node in step.trace.graph.nodes:
        if node.target is getitem:
            source, index = node.args
            values[step.op_of[source], index] = node
        elif node in step.op_of:
            op = step.op_of[node]
            if node.op == "call_function":
                calls[op] = node
                values.setdefault((op, 0), node)
            else:
                held.append((node, op))
                if step.graph.output_ptr[op + 1] > step.graph.output_ptr[op]:
                    values.setdefault((op, 0), node)
    return calls, values, held


def _data_edges(
    src: Int32[np.ndarray, " edges"], output: Int32[np.ndarray, " edges"], dst: Int32[np.ndarray, " edges"]
) -> tuple[Mapping[int, list[tuple[int, int]]], Mapping[int, dict[int, list[int]]]]:
    """Of each op its data inputs (op, output), and its consumers by output, those of control edges included."""
    inputs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    consumers: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for s, k, d in zip(src.tolist(), output.tolist(), dst.tolist(), strict=True):
        consumers[s][k].append(d)
        if k != CONTROL:
            inputs[d].append((s, k))
    return inputs, consumers


def _waits(plan: Plan, src: Int32[np.ndarray, " edges"], dst: Int32[np.ndarray, " edges"]) -> Mapping[int, list[int]]:
    """For each op the ops elsewhere that it waits for, the latest first: what comes earlier on the same device needs no signal then."""
    position = np.argsort(plan.order)
    waits: dict[int, list[int]] = defaultdict(list)
    for s, d in zip(src.tolist(), dst.tolist(), strict=True):
        if plan.device[s] != plan.device[d]:
            waits[d].append(s)
    for sources in waits.values():
        sources.sort(key=lambda op: -position[op])
    return waits


def _written(step: TracedStep) -> dict[int, list[int]]:
    """Of each root that is written in place, the ops that do so."""
    graph, written = step.graph, defaultdict(list)
    for node, op in step.op_of.items():
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            for output in range(graph.output_ptr[op], graph.output_ptr[op + 1]):
                written[int(graph.output_root[output])].append(op)
    return dict(written)
