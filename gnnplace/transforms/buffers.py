"""Buffers of a graph: the roots of its outputs, and which ops hold them (EXECUTION_MODEL.md, Memory)."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Int64, UInt32

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.transforms.schedule import compact


class Buffers(NamedTuple):
    """Roots are numbered by themselves; touches lie by op, each with its root: what the op consumes or produces, once."""

    output_root: UInt32[np.ndarray, " outputs"]
    output_bytes: Int64[np.ndarray, " outputs"]
    root_op: UInt32[np.ndarray, " roots"]
    root_bytes: Int64[np.ndarray, " roots"]
    touch_ptr: UInt32[np.ndarray, " ops_plus_1"]
    touch_root: UInt32[np.ndarray, " touches"]
    result_op: UInt32[np.ndarray, " results"]
    result_root: UInt32[np.ndarray, " results"]


_buffers: WeakKeyDictionary[ComputationGraph, Buffers] = WeakKeyDictionary()


def buffers(graph: ComputationGraph) -> Buffers:
    """The arrays of a graph, built once for as long as it lives."""
    if graph not in _buffers:
        roots = np.flatnonzero(graph.output_alias == NONE)
        output_root = np.searchsorted(roots, graph.output_root)
        touch_ptr, touch_root = _touches(graph, output_root)
        _buffers[graph] = Buffers(
            output_root=compact(output_root, np.uint32),
            output_bytes=compact(graph.output_bytes, np.int64),
            root_op=compact(graph.output_op[roots], np.uint32),
            root_bytes=compact(graph.output_bytes[roots], np.int64),
            touch_ptr=compact(touch_ptr, np.uint32),
            touch_root=compact(touch_root, np.uint32),
            result_op=compact(graph.output_op[graph.output_is_result], np.uint32),
            result_root=compact(output_root[graph.output_is_result], np.uint32),
        )
    return _buffers[graph]


def _touches(
    graph: ComputationGraph, output_root: Int64[np.ndarray, " outputs"]
) -> tuple[Int64[np.ndarray, " ops_plus_1"], Int64[np.ndarray, " touches"]]:
    """Every distinct root that an op consumes or produces: those of op i are `roots[ptr[i]:ptr[i+1]]`."""
    num_outputs, data = max(1, len(output_root)), np.flatnonzero(graph.edge_data != NONE)
    op = np.concatenate([graph.edge_dst[data], graph.output_op]).astype(np.int64)
    root = np.concatenate([output_root[graph.edge_data[data]], output_root])
    keys = np.unique(op * num_outputs + root)
    return np.searchsorted(keys // num_outputs, np.arange(graph.num_ops + 1)), keys % num_outputs
