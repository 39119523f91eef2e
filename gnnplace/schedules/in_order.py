"""The schedule `in-order`: a device runs its ops one after another, in the order of their priorities.

An op waits for the op before it as if a control edge led there (docs/execution-model.md#schedule-in-order). So the step
is that of a graph with these edges, which executors run; the simulator keeps the order itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int32, Integer

from gnnplace.graph import CONTROL, ComputationGraph, distinct

IntArray = Integer[np.ndarray, " edges"]


def in_order(
    graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ordered"]
) -> ComputationGraph:
    """The graph with a control edge between any two successive ops of a device, of those in `order`.

    Raises GraphError if an op waits for one that is behind it in the order.
    """
    grouped = order[np.argsort(device[order], kind="stable")]
    follows = device[grouped[:-1]] == device[grouped[1:]]
    outputs, ops = int(graph.edge_output.max(initial=CONTROL)) + 2, graph.num_ops

    def keys(src: IntArray, output: IntArray | int, dst: IntArray) -> IntArray:
        return (src.astype(np.int64) * outputs + output + 1) * ops + dst

    key = distinct(
        np.concatenate(
            [
                keys(graph.edge_src, graph.edge_output, graph.edge_dst),
                keys(grouped[:-1][follows], CONTROL, grouped[1:][follows]),
            ]
        )
    )
    first, dst = np.divmod(key, ops)
    src, output = np.divmod(first, outputs)
    return replace(
        graph,
        edge_src=src.astype(np.int32),
        edge_output=(output - 1).astype(np.int32),
        edge_dst=dst.astype(np.int32),
    )
