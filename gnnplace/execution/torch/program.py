"""A traced PyTorch step cut into one program for each device: its calls, sends, receipts and waits, in order.

This implements docs/execution-model.md#transfers. When an op ends, each of its outputs is sent once to each other
device that has a consumer of it: by output, then by device. A control edge to another device is a signal; it is left
out if other edges imply it. All programs follow one topological order, so no two devices wait for each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from operator import getitem

import numpy as np
from torch import Tensor

from gnnplace.execution.control_edges import needed
from gnnplace.execution.torch.running_state import Passed, passed
from gnnplace.execution.torch.values import Node, as_sent, is_whole
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch.buffers import storage_of
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.graph import CONTROL, NONE, ComputationGraph


@dataclass(frozen=True, eq=False)
class Message:
    """An output sent to one other device: the value of `node`. `tensor` is a meta tensor of the layout that is sent.

    `buffer` is the number of the first message that brings the same bytes to the same device: their outputs are aliases
    of one root, each of them fills the root's memory, and nothing writes to it in between.
    """

    number: int
    node: Node
    src: int
    dst: int
    tensor: Tensor
    buffer: int

    @property
    def bytes(self) -> int:
        """The bytes sent."""
        return self.tensor.untyped_storage().nbytes()

    @property
    def mark(self) -> int:
        """Its index in lists of times, for its sending at the source and for its receipt at the destination.

        These lists hold ops from the start and messages from the end.
        """
        return -1 - self.number


@dataclass(frozen=True)
class Signal:
    """A control edge to one other device."""

    number: int
    src: int
    dst: int


@dataclass(frozen=True)
class OpRun:
    """Runs the op of a node.

    `first` are nodes that belong to no op and run before it, as an optimiser's count of steps. `picks` select single
    outputs from its result.
    """

    op: int
    first: tuple[Node, ...]
    node: Node
    picks: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose values it reads."""
        return tuple(parent for node in (*self.first, self.node) for parent in node.all_input_nodes)


@dataclass(frozen=True)
class Send:
    """Sends a message or raises a signal."""

    what: Message | Signal


@dataclass(frozen=True)
class Receive:
    """Waits for a message or a signal."""

    what: Message | Signal


Instruction = OpRun | Send | Receive


@dataclass(frozen=True, eq=False)
class DeviceProgram:
    """The instructions of one device in a step.

    `held` are the nodes whose values it has before the step: variables, optimiser state, inputs, constants.
    """

    device: int
    held: tuple[Node, ...]
    instructions: tuple[Instruction, ...]

    @property
    def sent(self) -> list[Message | Signal]:
        """The messages and signals that it sends, in order."""
        return [line.what for line in self.instructions if isinstance(line, Send)]

    @property
    def received_messages(self) -> list[Message]:
        """The messages that it receives, in order."""
        received = [line.what for line in self.instructions if isinstance(line, Receive)]
        return [what for what in received if isinstance(what, Message)]

    @property
    def num_messages(self) -> int:
        """One more than the largest number of a message that it sends or receives."""
        sent = [what for what in self.sent if isinstance(what, Message)]
        return max((message.number for message in (*sent, *self.received_messages)), default=-1) + 1


def programs(step: TracedStep, plan: ExecutionPlan) -> tuple[DeviceProgram, ...]:
    """One program for each device of the plan. All messages and signals have distinct numbers."""
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
        # the first message with all bytes of a root: by root, storage, number of writes to it so far, and destination
        self._whole: dict[tuple[int, int, int, int], int] = {}
        self._arrived: set[tuple[Node, int]] = set()
        self._signals: dict[tuple[int, int], Signal] = {}
        self._position = np.argsort(plan.order)
        self._inputs, self._consumers = _edges_between_devices(graph, plan)
        self._states: dict[Passed, Message] = {}
        self._written_by, self._read_by = defaultdict[int, list[Passed]](list), defaultdict[int, list[Passed]](list)
        for state in passed(step, plan):
            self._written_by[state.writer].append(state)
            self._read_by[state.reader].append(state)
        self._written = {int(graph.output_ptr[op]) + output: writers for (op, output), writers in step.written.items()}

    def add(self, op: int) -> None:
        """Adds the receipts of the op's inputs, the op, and the sends of its outputs."""
        device = self._device[op]
        for source, output in self._inputs[op]:
            if output == CONTROL:
                self._lines[device].append(Receive(self._signals[source, device]))
            else:
                self._receive(source, output, op)
        self._lines[device] += [Receive(self._states[state]) for state in self._read_by.get(op, ())]
        if op in self._call:
            self._lines[device].append(self._run(op, self._call[op]))
        self._send(op)

    def finished(self) -> tuple[DeviceProgram, ...]:
        """The programs."""
        for state in self._read_by.get(NONE, ()):
            self._lines[state.dst].append(Receive(self._states[state]))
        held = [
            tuple(node for node, op in self._held if self._device[op] == device) for device in range(self._num_devices)
        ]
        return tuple(DeviceProgram(device, held[device], tuple(lines)) for device, lines in enumerate(self._lines))

    def _run(self, op: int, node: Node) -> OpRun:
        first = (
            parent for parent in node.all_input_nodes if parent not in self._op_of and parent.target is not getitem
        )
        return OpRun(op, tuple(first), node, tuple(user for user in node.users if user.target is getitem))

    def _receive(self, source: int, output: int, op: int) -> None:
        """Adds the receipt of an output of another device, once a device."""
        node, device = self._values[source, output], self._device[op]
        if (node, device) not in self._arrived:
            self._arrived.add((node, device))
            self._lines[device].append(Receive(self._messages[node, device]))

    def _send(self, op: int) -> None:
        """Adds a send to each device that waits for the op, by output, then by device."""
        for output, consumers in sorted(self._consumers[op].items()):
            for dst in sorted({self._device[consumer] for consumer in consumers}):
                what = self._signal(op, dst) if output == CONTROL else self._message(op, output, dst)
                self._lines[self._device[op]].append(Send(what))
        for state in self._written_by.get(op, ()):
            number, tensor = self._count, as_sent(state.node.meta["val"])
            sent = self._states[state] = Message(number, state.node, self._device[op], state.dst, tensor, number)
            self._lines[self._device[op]].append(Send(sent))

    def _signal(self, op: int, dst: int) -> Signal:
        signal = self._signals[op, dst] = Signal(self._count, self._device[op], dst)
        return signal

    def _message(self, op: int, output: int, dst: int) -> Message:
        node, number = self._values[op, output], self._count
        tensor, root = as_sent(node.meta["val"]), int(self._graph.output_root[self._graph.output_ptr[op] + output])
        writes = sum(self._position[writer] <= self._position[op] for writer in self._written.get(root, ()))
        bytes_of = root, storage_of(node.meta["val"]), writes, dst  # a sum apart from its graph's root has its own
        buffer = self._whole.setdefault(bytes_of, number) if is_whole(node.meta["val"], tensor) else number
        message = self._messages[node, dst] = Message(number, node, self._device[op], dst, tensor, buffer)
        return message

    @property
    def _count(self) -> int:
        return len(self._messages) + len(self._signals) + len(self._states)


def _nodes(step: TracedStep) -> tuple[dict[int, Node], dict[tuple[int, int], Node], list[tuple[Node, int]]]:
    """The call of each op that has one, the node of each output (op, output), and the nodes whose values exist before
    the step, with their ops.
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
    """Each op's inputs (op, output) from other devices, data before control, and its consumers there by output.

    Control edges that other edges imply are left out.
    """
    inputs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    consumers: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    away = needed(graph, plan.device, plan.order) & (plan.device[graph.edge_src] != plan.device[graph.edge_dst])
    columns = (column[away].tolist() for column in (graph.edge_src, graph.edge_output, graph.edge_dst))
    for source, output, consumer in zip(*columns, strict=True):
        inputs[consumer].append((source, output))
        consumers[source][output].append(consumer)
    for sources in inputs.values():
        sources.sort(key=lambda source: source[1] == CONTROL)
    return inputs, consumers
