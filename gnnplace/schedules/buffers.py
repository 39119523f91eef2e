"""The buffers of a graph: the roots of its outputs, and which ops hold them (docs/execution-model.md#memory)."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Int64, UInt32

from gnnplace.graph import NONE, ComputationGraph, distinct
from gnnplace.schedules.ranks import compact


class Buffers(NamedTuple):
    """The roots of a graph, numbered `0..roots-1`, and its touches, sorted by op.

    A root is an output that owns a buffer. A touch is a pair (op, root) where the op consumes or produces the root;
    each pair occurs once. If a device keeps parts of a root in separate buffers, an alias may use another buffer than
    its root. Then every output counts as a root; an alias counts as a root of 0 bytes.
    """

    output_root: UInt32[np.ndarray, " outputs"]
    output_part: UInt32[np.ndarray, " outputs"]  # the output itself if it is smaller than its root, else the root
    output_op: UInt32[np.ndarray, " outputs"]
    output_bytes: Int64[np.ndarray, " outputs"]
    alias: UInt32[np.ndarray, " aliases"]  # the outputs that are aliases; each comes after the output it names
    alias_of: UInt32[np.ndarray, " aliases"]
    root_op: UInt32[np.ndarray, " roots"]
    root_bytes: Int64[np.ndarray, " roots"]
    touch_ptr: UInt32[np.ndarray, " ops_plus_1"]
    touch_root: UInt32[np.ndarray, " touches"]
    result_op: UInt32[np.ndarray, " results"]
    result_root: UInt32[np.ndarray, " results"]


_buffers: WeakKeyDictionary[ComputationGraph, dict[bool, Buffers]] = WeakKeyDictionary()


def buffers(graph: ComputationGraph, apart: bool = False) -> Buffers:
    """The buffers of a graph, built once and kept as long as the graph lives.

    `apart` is True if some device keeps parts of a root in separate buffers.
    """
    cache = _buffers.setdefault(graph, {})
    if apart not in cache:
        cache[apart] = _build(graph, apart)
    return cache[apart]


def _build(graph: ComputationGraph, apart: bool) -> Buffers:
    aliased = graph.output_alias != NONE
    roots, alias = np.arange(len(aliased)) if apart else np.flatnonzero(~aliased), np.flatnonzero(aliased)
    alias = alias[np.argsort(graph.level[graph.output_op[alias]], kind="stable")]
    number = np.arange(len(aliased)) if apart else np.searchsorted(roots, graph.output_root)
    part = graph.output_bytes < graph.output_bytes[graph.output_root]
    touch_ptr, touch_root = _touches(graph, number)
    return Buffers(
        output_root=compact(graph.output_root if apart else number, np.uint32),
        output_part=compact(np.where(part, number, graph.output_root) if apart else number, np.uint32),
        output_op=compact(graph.output_op, np.uint32),
        output_bytes=compact(graph.output_bytes, np.int64),
        alias=compact(alias, np.uint32),
        alias_of=compact(graph.output_alias[alias], np.uint32),
        root_op=compact(graph.output_op[roots], np.uint32),
        root_bytes=compact(np.where(aliased, 0, graph.output_bytes)[roots], np.int64),
        touch_ptr=compact(touch_ptr, np.uint32),
        touch_root=compact(touch_root, np.uint32),
        result_op=compact(graph.output_op[graph.output_is_result], np.uint32),
        result_root=compact(number[graph.output_is_result], np.uint32),
    )


def _touches(
    graph: ComputationGraph, output_root: Int64[np.ndarray, " outputs"]
) -> tuple[Int64[np.ndarray, " ops_plus_1"], Int64[np.ndarray, " touches"]]:
    """`ptr` and `roots`: op i consumes or produces the distinct roots `roots[ptr[i]:ptr[i+1]]`."""
    num_outputs, data = max(1, len(output_root)), np.flatnonzero(graph.edge_data != NONE)
    op = np.concatenate([graph.edge_dst[data], graph.output_op]).astype(np.int64)
    root = np.concatenate([output_root[graph.edge_data[data]], output_root])
    keys = distinct(op * num_outputs + root)
    return np.searchsorted(keys // num_outputs, np.arange(graph.num_ops + 1)), keys % num_outputs
