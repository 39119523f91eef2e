"""A graph whose element-wise ops write over an input that nothing needs after them, as TensorFlow's do.

There it is `forward_input_or_allocate_output`. Which inputs these are is known once a plan says where ops run and in
which order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import NONE, ComputationGraph

KINDS = ("elementwise", "activation", "activation_grad", "softmax")  # canonical
KEPT = ("Const", "Placeholder", "ReadVariableOp", "VarHandleOp")  # what they yield outlives the step


def in_place(
    graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]
) -> ComputationGraph:
    """The graph where the output of each such op is an alias of the first input that the op may overwrite.

    An op may overwrite an input of the same size and dtype that is not a result, if no later op on the device uses the
    input's buffer. An output that is sent must lie in memory that the network can read (`InferAllocAttr`). So it may
    overwrite only an input that was received or is sent itself. An input that the device is waiting for is not
    overwritten, because its server still holds it when it arrives: the device runs no op between the input's producer
    and the op. Devices should receive each output in a buffer of its own (`received: outputs`), because an overwritten
    output may be sent back.
    """
    num_outputs, made_on = len(graph.output_op), device[graph.output_op]
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[order] = np.arange(graph.num_ops)
    data = np.flatnonzero(graph.edge_data != NONE)
    used, user = graph.edge_data[data], graph.edge_dst[data]
    before = _before(device, order)

    # where each output lies on each device: in a buffer of its own where it is received, or made and no alias
    num_devices = int(device.max(initial=0)) + 1
    lies = np.arange(num_outputs * num_devices).reshape(num_outputs, num_devices)
    for output in sorted(
        np.flatnonzero(graph.output_alias != NONE), key=lambda output: position[graph.output_op[output]]
    ):
        lies[output, made_on[output]] = lies[graph.output_alias[output], made_on[output]]
    home = lies[np.arange(num_outputs), made_on]
    last = np.full(lies.size, NONE, dtype=np.int64)  # position of a buffer's last user
    np.maximum.at(last, home, position[graph.output_op])
    np.maximum.at(last, lies[used, device[user]], position[user])
    sent, held = np.zeros(num_outputs, dtype=bool), np.zeros(lies.size, dtype=bool)
    sent[used[device[user] != made_on[used]]] = True
    held[home[graph.output_is_result | graph.kind.among(KEPT)[graph.output_op]]] = True
    dtype, alias = graph.output_dtype.index, graph.output_alias.copy()

    def free(given: int, op: int, target: int) -> bool:
        buffer = lies[given, device[op]]
        alike = graph.output_bytes[given] == graph.output_bytes[target] and dtype[given] == dtype[target] != NONE
        arrived = made_on[given] != device[op]
        awaited = arrived and before[op] < position[graph.output_op[given]]
        usable = not awaited and (arrived or sent[given] or not sent[target])
        return bool(alike and usable and last[buffer] == position[op] and not held[buffer])

    able = graph.canonical_kind.among(KINDS) & (np.diff(graph.output_ptr) == 1)
    for op in order[able[order]].tolist():
        target, here = int(graph.output_ptr[op]), device[op]
        inputs = graph.edge_data[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]
        given = next((data for data in inputs.tolist() if data != NONE and free(data, op, target)), NONE)
        if alias[target] == NONE and given != NONE:
            over, instead = lies[given, here], lies[target, here]
            last[over], held[over], alias[target] = last[instead], held[instead], given
            lies[lies[:, here] == instead, here] = over
    return replace(graph, output_alias=alias)


def _before(device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The position of the previous op on the same device, for each op; `NONE` for the first."""
    before = np.full(len(order), NONE, dtype=np.int64)
    for here in np.unique(device):
        (places,) = np.nonzero(device[order] == here)
        before[order[places[1:]]] = places[:-1]
    return before
