"""A graph whose element-wise ops overwrite an input that nothing needs after them, as TensorFlow's ops do.

TensorFlow's function is `forward_input_or_allocate_output`. The devices and the order of ops decide which inputs these
are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import NONE, ComputationGraph

KINDS = ("elementwise", "activation", "activation_grad", "softmax")  # canonical
KEPT = ("Const", "Placeholder", "ReadVariableOp", "VarHandleOp")  # their outputs outlive the step


def in_place(
    graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]
) -> ComputationGraph:
    """The graph in which the output of each such op is an alias of the first input that the op may overwrite.

    An op may overwrite an input of the same size and dtype that is not a result, if no later op on the device uses the
    input's buffer. An output that is sent must be in memory that the network can read (`InferAllocAttr`), so it may
    overwrite only an input that was received or is itself sent. An input that the device waits for is not overwritten:
    the device runs no op between the input's producer and the op, so its server still holds the input when it arrives.
    Devices should receive each output in a buffer of its own (`received: outputs`), because an overwritten output may
    be sent back.
    """
    buffers, alias = _Buffers(graph, device, order), graph.output_alias.copy()
    able = graph.canonical_kind.among(KINDS) & (np.diff(graph.output_ptr) == 1)
    for op in order[able[order]].tolist():
        output = int(graph.output_ptr[op])
        inputs = graph.edge_data[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]].tolist()
        overwritten = next((data for data in inputs if data != NONE and buffers.may_overwrite(op, data, output)), NONE)
        if alias[output] == NONE and overwritten != NONE:
            alias[output] = overwritten
            buffers.merge(output, overwritten, int(device[op]))
    return replace(graph, output_alias=alias)


class _Buffers:
    """The buffer of each output on each device, and for each buffer its last user and whether it outlives its users.

    An output has a buffer of its own on a device that receives it, and on its op's device unless it is an alias.
    """

    def __init__(
        self, graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]
    ) -> None:
        num_outputs, made_on = len(graph.output_op), device[graph.output_op]
        self._graph, self._device, self._made_on = graph, device, made_on
        self._before = _before(device, order)
        self._position = position = np.empty(graph.num_ops, dtype=np.int64)
        position[order] = np.arange(graph.num_ops)
        data = np.flatnonzero(graph.edge_data != NONE)
        used, user = graph.edge_data[data], graph.edge_dst[data]

        num_devices = int(device.max(initial=0)) + 1
        self._buffer = buffer = np.arange(num_outputs * num_devices).reshape(num_outputs, num_devices)
        aliases = np.flatnonzero(graph.output_alias != NONE)
        for output in sorted(aliases, key=lambda output: position[graph.output_op[output]]):
            buffer[output, made_on[output]] = buffer[graph.output_alias[output], made_on[output]]
        home = buffer[np.arange(num_outputs), made_on]
        self._last = np.full(buffer.size, NONE, dtype=np.int64)  # position of a buffer's last user
        np.maximum.at(self._last, home, position[graph.output_op])
        np.maximum.at(self._last, buffer[used, device[user]], position[user])
        self._sent, self._kept = np.zeros(num_outputs, dtype=bool), np.zeros(buffer.size, dtype=bool)
        self._sent[used[device[user] != made_on[used]]] = True
        self._kept[home[graph.output_is_result | graph.kind.among(KEPT)[graph.output_op]]] = True

    def may_overwrite(self, op: int, data: int, output: int) -> bool:
        """Whether an op may write its output over an input."""
        graph, dtype, position = self._graph, self._graph.output_dtype.index, self._position
        buffer = self._buffer[data, self._device[op]]
        alike = graph.output_bytes[data] == graph.output_bytes[output] and dtype[data] == dtype[output] != NONE
        received = self._made_on[data] != self._device[op]
        awaited = received and self._before[op] < position[graph.output_op[data]]
        usable = not awaited and (received or self._sent[data] or not self._sent[output])
        return bool(alike and usable and self._last[buffer] == position[op] and not self._kept[buffer])

    def merge(self, output: int, overwritten: int, device: int) -> None:
        """Puts an output, and all in its buffer, into the buffer of the overwritten input on a device."""
        target, source = self._buffer[overwritten, device], self._buffer[output, device]
        self._last[target], self._kept[target] = self._last[source], self._kept[source]
        self._buffer[self._buffer[:, device] == source, device] = target


def _before(device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The position of the previous op on the same device, for each op; `NONE` for the first."""
    before = np.full(len(order), NONE, dtype=np.int64)
    for number in np.unique(device):
        (places,) = np.nonzero(device[order] == number)
        before[order[places[1:]]] = places[:-1]
    return before
