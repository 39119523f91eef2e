"""A traced PyTorch step cut into one program a device: which calls it makes, what it sends, receives and waits for, in
order.

What docs/execution-model.md#transfers says is done here: when an op ends, each of its outputs is sent once to each
other device that has a consumer of it, by output, then by device; a control edge to another device is a signal, left
out where others say so already. Nobody waits for a device that could wait for it in turn: all programs follow one
topological order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from operator import getitem

import numpy as np
from torch import Tensor

from gnnplace.execution.control_edges import needed
from gnnplace.execution.torch.values import Node, as_sent, is_whole
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.graph import CONTROL, ComputationGraph


@dataclass(frozen=True, eq=False)
class Message:
    """An output on its way to one other device: the value of `node`, which looks like `tensor` (a fake one, as it is
    sent).

    Messages of one `buffer`, the number of the first of them, bring the same bytes to the same device: they are aliases
    of one root, each fills its memory, and nothing writes there in between.
    """

    number: int
    node: Node
    src: int
    dst: int
    tensor: Tensor
    buffer: int

    @property
    def bytes(self) -> int:
        """What is sent."""
        return self.tensor.untyped_storage().nbytes()

    @property
    def mark(self) -> int:
        """The place of its sending, at its destination of its receipt, in lists of times: they count ops from the
        start, messages from the end.
        """
        return -1 - self.number


@dataclass(frozen=True)
class Signal:
    """A control edge on its way to one other device."""

    number: int
    src: int
    dst: int


@dataclass(frozen=True)
class OpRun:
    """Runs the op of a node. `first` are nodes of no op of their own (an optimiser's count of steps) that run before
    it; `picks` take single outputs out of what it returns.
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


Instruction = OpRun | Send | Receive


@dataclass(frozen=True, eq=False)
class DeviceProgram:
    """What one device does in a step.

    `held` are the nodes whose values it has before: its variables, state, inputs, constants.
    """

    device: int
    held: tuple[Node, ...]
    instructions: tuple[Instruction, ...]

    @property
    def num_messages(self) -> int:
        """One more than the largest number of a message that it sends or receives."""
        messages = (
            line.what.number
            for line in self.instructions
            if isinstance(line, Send | Receive) and isinstance(line.what, Message)
        )
        return max(messages, default=-1) + 1


def programs(step: TracedStep, plan: ExecutionPlan) -> tuple[DeviceProgram, ...]:
    """One program for each device of the plan. Numbers of messages and signals are distinct over all of them."""
    writer = _Writer(step, plan)
    for op in plan.order.tolist():
        writer.add(op)
    return writer.finished()


class _Writer:
    """Writes all programs at once, op by op in the plan's order."""

    def __init__(self, step: TracedStep, plan: ExecutionPlan) -> None:
        graph = step.graph
        self._plan, self._graph, self._num_devices = plan, graph, len(plan.devices)
        self._device: list[int] = plan.device.tolist()
        self._op_of = step.op_of
        self._call, self._values, self._held = _nodes(step)
        self._lines: list[list[Instruction]] = [[] for _ in plan.devices]
        self._messages: dict[tuple[Node, int], Message] = {}
        # messages that are the whole of a root: its number, its writes so far, to where
        self._whole: dict[tuple[int, int, int], int] = {}
        self._arrived: set[tuple[Node, int]] = set()
        self._signals: dict[tuple[int, int], Signal] = {}
        self._position = np.argsort(plan.order)
        self._inputs, self._consumers = _edges_between_devices(graph, plan)
        self._written = {int(graph.output_ptr[op]) + output: writers for (op, output), writers in step.written.items()}

    def add(self, op: int) -> None:
        """Receives what the op needs, runs it, sends what it makes."""
        here = self._device[op]
        for source, output in self._inputs[op]:
            if output == CONTROL:
                self._lines[here].append(Receive(self._signals[source, here]))
            else:
                self._receive(source, output, op)
        if op in self._call:
            self._lines[here].append(self._called(op, self._call[op]))
        self._send(op)

    def finished(self) -> tuple[DeviceProgram, ...]:
        """The programs."""
        held = [
            tuple(node for node, op in self._held if self._device[op] == device) for device in range(self._num_devices)
        ]
        return tuple(DeviceProgram(device, held[device], tuple(lines)) for device, lines in enumerate(self._lines))

    def _called(self, op: int, node: Node) -> OpRun:
        first = (
            parent for parent in node.all_input_nodes if parent not in self._op_of and parent.target is not getitem
        )
        return OpRun(op, tuple(first), node, tuple(user for user in node.users if user.target is getitem))

    def _receive(self, source: int, output: int, op: int) -> None:
        node, here = self._values[source, output], self._device[op]
        if (node, here) not in self._arrived:
            self._arrived.add((node, here))
            self._lines[here].append(Receive(self._messages[node, here]))

    def _send(self, op: int) -> None:
        here = self._device[op]
        for output, consumers in sorted(self._consumers[op].items()):
            for there in sorted({self._device[consumer] for consumer in consumers}):
                self._lines[here].append(
                    Send(self._signal(op, there) if output == CONTROL else self._message(op, output, there))
                )

    def _signal(self, op: int, there: int) -> Signal:
        signal = self._signals[op, there] = Signal(self._count, self._device[op], there)
        return signal

    def _message(self, op: int, output: int, there: int) -> Message:
        node, number = self._values[op, output], self._count
        tensor, root = as_sent(node.meta["val"]), int(self._graph.output_root[self._graph.output_ptr[op] + output])
        writes = sum(self._position[writer] <= self._position[op] for writer in self._written.get(root, ()))
        buffer = self._whole.setdefault((root, writes, there), number) if is_whole(node.meta["val"], tensor) else number
        message = self._messages[node, there] = Message(number, node, self._device[op], there, tensor, buffer)
        return message

    @property
    def _count(self) -> int:
        return len(self._messages) + len(self._signals)


def _nodes(step: TracedStep) -> tuple[dict[int, Node], dict[tuple[int, int], Node], list[tuple[Node, int]]]:
    """The call of each op that has one, the node of each output, and the
    nodes whose values exist before the step, with their ops.
    """
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


def _edges_between_devices(
    graph: ComputationGraph, plan: ExecutionPlan
) -> tuple[Mapping[int, list[tuple[int, int]]], Mapping[int, dict[int, list[int]]]]:
    """Of each op its inputs from elsewhere (op, output), data before control, and its consumers elsewhere by output: of
    control edges those that are needed.
    """
    inputs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    consumers: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    away = needed(graph, plan.device, plan.order) & (plan.device[graph.edge_src] != plan.device[graph.edge_dst])
    columns = (column[away].tolist() for column in (graph.edge_src, graph.edge_output, graph.edge_dst))
    for source, output, consumer in zip(*columns, strict=True):
        inputs[consumer].append((source, output))
        consumers[source][output].append(consumer)
    for sources in inputs.values():
        sources.sort(key=lambda each: each[1] == CONTROL)
    return inputs, consumers
