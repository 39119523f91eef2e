"""A graph whose element-wise ops write over an input that nothing needs after them, as TensorFlow's do.

There it is `forward_input_or_allocate_output`. Which inputs these are is known once a plan says where ops run and in which order.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int32

from gnnplace.graph import NONE, ComputationGraph

KINDS = ("elementwise", "activation", "activation_grad", "softmax")  # canonical
KEPT = ("Const", "Placeholder", "ReadVariableOp", "VarHandleOp")  # what they yield outlives the step


def in_place(graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]) -> ComputationGraph:
    """The graph with such an op's output as an alias of the first input that it may write over.

    That one is as large and of the same dtype, and the op is the last that uses it on this device: it was made here and is used nowhere
    else, or it was received. What the op itself sends is made anew: servers want it where the network takes it from (`InferAllocAttr`).
    """
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[order] = np.arange(graph.num_ops)
    root, alias, made_on = graph.output_root.copy(), graph.output_alias.copy(), device[graph.output_op]
    data = np.flatnonzero(graph.edge_data != NONE)
    outputs, users = graph.edge_data[data], graph.edge_dst[data]
    last = np.full((len(root), int(device.max(initial=0)) + 1), NONE, dtype=np.int64)  # position of a root's last user on each device
    last[np.arange(len(root)), made_on] = position[graph.output_op]
    np.maximum.at(last, (root[outputs], device[users]), position[users])
    sent, away = np.zeros(len(root), dtype=bool), np.zeros(len(root), dtype=bool)  # away: of a root, any alias is used elsewhere or later
    np.logical_or.at(sent, outputs, device[users] != made_on[outputs])
    np.logical_or.at(away, root[outputs], device[users] != made_on[root[outputs]])
    np.logical_or.at(away, root, graph.output_is_result)
    kept, dtype = graph.kind.among(KEPT)[graph.output_op], graph.output_dtype.index

    def free(given: int, op: int, own: int) -> bool:
        over, here = root[given], device[op]
        unused = not (away[over] or kept[over]) if made_on[over] == here else not away[own]
        alike = graph.output_bytes[given] == graph.output_bytes[own] and dtype[given] == dtype[own] != NONE
        return bool(unused and alike and last[over, here] == position[op])

    able = graph.canonical_kind.among(KINDS) & (np.diff(graph.output_ptr) == 1)
    for op in order[able[order]].tolist():
        own = int(graph.output_ptr[op])
        inputs = graph.edge_data[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]
        given = next((data for data in inputs.tolist() if data != NONE and free(data, op, own)), NONE)
        if root[own] == own and not sent[own] and given != NONE:
            over, alias[own] = root[given], given
            last[over, device[op]], away[over] = last[own, device[op]], away[over] | away[own]
            root[root == own] = over
    return replace(graph, output_alias=alias)
