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

    That one is as large and of the same dtype, made on the op's device and used nowhere else, and the op is the last to use it.
    """
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[order] = np.arange(graph.num_ops)
    root, alias = graph.output_root.copy(), graph.output_alias.copy()
    last = position[graph.output_op]  # of each root: the position of the last op that uses it ...
    away, kept = graph.output_is_result.copy(), graph.kind.among(KEPT)[graph.output_op]  # ... whether it is used elsewhere
    data = np.flatnonzero(graph.edge_data != NONE)
    used, users = root[graph.edge_data[data]], graph.edge_dst[data]
    np.maximum.at(last, used, position[users])
    np.logical_or.at(away, used, device[users] != device[graph.output_op[used]])
    np.logical_or.at(away, root, graph.output_is_result)
    dtype, able = graph.output_dtype.index, graph.canonical_kind.among(KINDS) & (np.diff(graph.output_ptr) == 1)
    for op in order[able[order]].tolist():
        own = int(graph.output_ptr[op])
        if root[own] != own:
            continue
        for edge in graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]].tolist():
            given = int(graph.edge_data[edge])
            over = NONE if given == NONE else int(root[given])
            if over == NONE or away[over] or kept[over] or last[over] != position[op] or device[graph.output_op[over]] != device[op]:
                continue
            if graph.output_bytes[over] == graph.output_bytes[own] and dtype[given] == dtype[own]:
                alias[own] = given
                last[over], away[over] = last[own], away[own]
                root[root == own] = over
                break
    return replace(graph, output_alias=alias)
