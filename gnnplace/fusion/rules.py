"""Which ops may run fused, as one op (docs/execution-model.md#what-may-be-fused).

A fusion is a label for each op: ops of one label are a *group*. Its *leader* is the lowest op of the group.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Integer

from gnnplace.compiled import kernel
from gnnplace.graph import NONE, ComputationGraph, levels

APART = ("variable", "input", "control")  # kinds that are never fused
LIGHT = (
    "pool", "pool_grad", "normalization", "normalization_grad", "softmax", "loss", "embedding", "embedding_grad",
    "elementwise",
    "activation", "activation_grad", "reduce", "concat", "split", "slice", "transpose", "reshape", "gather", "scatter",
    "cast", "fill",
    "random", "update", "shape",
)  # fmt: skip


class Rules(NamedTuple):
    """The ops that may be fused, and the heavy ops, of which a group has at most one.

    Heavy ops are matrix products, convolutions and unknown kinds.
    """

    fusable: Bool[np.ndarray, " ops"]
    heavy: Bool[np.ndarray, " ops"]


_rules: WeakKeyDictionary[ComputationGraph, Rules] = WeakKeyDictionary()


def rules(graph: ComputationGraph) -> Rules:
    """The rules of a graph, computed once and kept as long as the graph lives."""
    if graph not in _rules:
        kind = graph.canonical_kind
        _rules[graph] = Rules((graph.persistent_bytes == 0) & ~kind.among(APART), graph.kernel & ~kind.among(LIGHT))
    return _rules[graph]


def leaders(fusion: Integer[np.ndarray, " ops"]) -> Int32[np.ndarray, " ops"]:
    """The leader of each op's group; labels are from 0 to the number of ops.

    >>> leaders(np.array([4, 1, 1, 0, 4])).tolist()
    [0, 1, 1, 3, 0]
    """
    first = np.full(len(fusion), len(fusion), dtype=np.int32)
    np.minimum.at(first, fusion, np.arange(len(fusion), dtype=np.int32))
    return first[fusion]


def refusal(graph: ComputationGraph, leader: Int32[np.ndarray, " ops"]) -> str | None:
    """The first rule that a group breaks, whatever its device; None if no group breaks a rule."""
    fused = np.bincount(leader, minlength=graph.num_ops)[leader] > 1
    fusable, heavy = rules(graph)
    names = graph.op_names
    if (bad := np.flatnonzero(fused & ~fusable)).size:
        return f"fusion: {names[bad[0]]!r} can't be fused: it is state, an input or control"
    weight = np.bincount(leader[heavy], minlength=graph.num_ops)[leader]
    if (bad := np.flatnonzero(fused & heavy & (weight > 1))).size:
        first, second = bad[leader[bad] == leader[bad[0]]][:2]
        return f"fusion: {names[first]!r} and {names[second]!r} can't be fused: at most one op of a group may be heavy"
    connected = _connected(leader, graph.edge_src, graph.edge_dst, graph.edge_data != NONE)
    if (bad := np.flatnonzero(connected != leader)).size:
        return f"fusion: {names[bad[0]]!r} is fused with {names[leader[bad[0]]]!r}, but no tensors join them"
    return _cycle(graph, leader, fused)


def _cycle(graph: ComputationGraph, leader: Int32[np.ndarray, " ops"], fused: Bool[np.ndarray, " ops"]) -> str | None:
    """The refusal of groups that depend on one another in a cycle; None if none do."""
    src, dst = leader[graph.edge_src], leader[graph.edge_dst]
    between = np.flatnonzero(src != dst)
    between = between[np.argsort(src[between], kind="stable")]
    ptr = np.searchsorted(src[between], np.arange(graph.num_ops + 1)).astype(np.int64)
    level, seen = levels(graph.num_ops, ptr, dst[between])
    if seen == graph.num_ops:
        return None
    group = int(np.flatnonzero(fused & (level[leader] == NONE))[0])
    return f"fusion: the group of {graph.op_names[group]!r} lies on or behind a cycle of fused ops"


@kernel
@no_type_check
def _connected(leader, src, dst, carries):
    """For each op the lowest op of its group that tensors within the group connect with it."""
    first = np.arange(len(leader))
    for edge in range(len(src)):
        if carries[edge] and leader[src[edge]] == leader[dst[edge]]:
            a, b = src[edge], dst[edge]
            while first[a] != a:
                first[a] = first[first[a]]
                a = first[a]
            while first[b] != b:
                first[b] = first[first[b]]
                b = first[b]
            first[max(a, b)] = min(a, b)
    for op in range(len(leader)):
        first[op] = first[first[op]]
    return first
