"""The memory need of a graph: the most bytes that every placement holds at once on all devices together.

While an op runs, an output is on some device if an ancestor of the op produced it and the op or a descendant has yet to
read it. This holds for every placement and order. So all memories together hold at least the persistent bytes, these
outputs, the op's own outputs and its workspace. The largest of these sums over all ops is the *need* of the graph. An
alias may have a smaller buffer than its root if only the alias was sent; so of each root, the largest output that is
certainly held counts.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.compiled import kernel, part
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.schedules.buffers import buffers

MOST_OPS = 8192  # of a larger graph, only this many ops are examined, evenly spaced in its order
WORD = 64  # ops that one pass over the graph examines
ONE = np.uint64(1)


class Need(NamedTuple):
    """The bytes that every placement holds while `op` runs: persistent bytes, outputs that are alive, the workspace."""

    op: int
    persistent_bytes: int
    alive_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.persistent_bytes + self.alive_bytes


_needs: WeakKeyDictionary[ComputationGraph, Need] = WeakKeyDictionary()


def need(graph: ComputationGraph, among: Bool[np.ndarray, " ops"] | None = None) -> Need:
    """The most bytes that every placement of a graph provably holds at once on all devices together.

    With `among`, the need of a step of these ops only. Persistent bytes count if one of these ops holds or reads them.
    """
    if among is None and graph in _needs:
        return _needs[graph]
    some = np.ones(graph.num_ops, dtype=bool) if among is None else among
    ops = graph.order[some[graph.order]].astype(np.int64)
    ops = ops[:: max(1, -(-len(ops) // MOST_OPS))].copy()
    alive = alive_bytes(graph, ops, some) + graph.workspace_bytes[ops]
    most = int(alive.argmax())
    held = some.copy()
    held[graph.output_op[graph.output_root[graph.edge_data[some[graph.edge_dst] & (graph.edge_data != NONE)]]]] = True
    peak = Need(int(ops[most]), int(graph.persistent_bytes[held].sum()), int(alive[most]))
    if among is None:
        _needs[graph] = peak
    return peak


class _Edges(NamedTuple):
    """The edges of a graph; the out-edges of op i are `out_ptr[i]:out_ptr[i+1]`, and `order` is topological."""

    order: Int32[np.ndarray, " ops"]
    out_ptr: Int64[np.ndarray, " ops_plus_1"]
    dst: Int32[np.ndarray, " edges"]
    data: Int64[np.ndarray, " edges"]


class _Outputs(NamedTuple):
    """The outputs of op i are `ptr[i]:ptr[i+1]`, those that share root r `by_root[root_ptr[r]:root_ptr[r+1]]`."""

    ptr: Int64[np.ndarray, " ops_plus_1"]
    op: Int32[np.ndarray, " outputs"]
    is_result: Bool[np.ndarray, " outputs"]
    by_root: Int64[np.ndarray, " outputs"]
    root_ptr: Int64[np.ndarray, " roots_plus_1"]
    least_bytes: Int64[np.ndarray, " outputs"]


def alive_bytes(
    graph: ComputationGraph, ops: Int64[np.ndarray, " some"], among: Bool[np.ndarray, " ops"]
) -> Int64[np.ndarray, " some"]:
    """The bytes of outputs that are alive in every placement of the ops `among` while each of `ops` runs."""
    by_root = np.argsort(graph.output_root, kind="stable")
    outputs = _Outputs(
        ptr=graph.output_ptr,
        op=graph.output_op,
        is_result=graph.output_is_result,
        by_root=by_root,
        root_ptr=np.searchsorted(graph.output_root[by_root], np.arange(len(by_root) + 1)),
        least_bytes=least_bytes(graph),
    )
    return _alive(_Edges(graph.order, graph.out_ptr, graph.edge_dst, graph.edge_data), outputs, among, ops)


def least_bytes(graph: ComputationGraph) -> Int64[np.ndarray, " outputs"]:
    """The least size of a buffer that holds each output: the smallest output along its chain of aliases."""
    table, least = buffers(graph), graph.output_bytes.astype(np.int64)
    for alias, output in zip(table.alias.tolist(), table.alias_of.tolist(), strict=True):
        least[alias] = min(least[alias], least[output])
    return least


@kernel
@no_type_check
def _alive(edges, outputs, among, ops):
    """`alive_bytes`, for `WORD` ops in each pass over the graph: each of them is a bit of a word."""
    totals = np.zeros(len(ops), np.int64)
    # by op: the bits of its descendants and of its ancestors, itself included
    before, after = np.zeros(len(edges.order), np.uint64), np.zeros(len(edges.order), np.uint64)
    awaited = np.zeros(len(outputs.op), np.uint64)
    for first in range(0, len(ops), WORD):
        running = ops[first : first + WORD]
        before[:] = 0
        after[:] = 0
        for bit in range(len(running)):
            before[running[bit]] |= ONE << np.uint64(bit)
            after[running[bit]] |= ONE << np.uint64(bit)
        for op in edges.order:
            for edge in range(edges.out_ptr[op], edges.out_ptr[op + 1]):
                after[edges.dst[edge]] |= after[op]
        _await_outputs(outputs, running, awaited)
        for op in edges.order[::-1]:
            for edge in range(edges.out_ptr[op], edges.out_ptr[op + 1]):
                reader = edges.dst[edge]
                before[op] |= before[reader]
                if among[reader] and edges.data[edge] != NONE:
                    awaited[edges.data[edge]] |= after[reader]
        _add_alive(outputs, before, awaited, totals[first : first + WORD])
    return totals


@part
@no_type_check
def _await_outputs(outputs, running, awaited):
    """Sets the bits of results, which every op awaits, and of the outputs of the running ops themselves."""
    for output in range(len(awaited)):
        awaited[output] = ~np.uint64(0) if outputs.is_result[output] else np.uint64(0)
    for bit in range(len(running)):
        for output in range(outputs.ptr[running[bit]], outputs.ptr[running[bit] + 1]):
            awaited[output] |= ONE << np.uint64(bit)


@part
@no_type_check
def _add_alive(outputs, before, awaited, totals):
    """Adds to each bit's total the largest output of each root that is alive, produced and still awaited."""
    largest = np.zeros(WORD, np.int64)
    for root in range(len(outputs.root_ptr) - 1):
        held = np.uint64(0)
        for place in range(outputs.root_ptr[root], outputs.root_ptr[root + 1]):
            output = outputs.by_root[place]
            alive = awaited[output] & before[outputs.op[output]]
            held |= alive
            for bit in range(len(totals) if alive else 0):
                if alive >> np.uint64(bit) & ONE:
                    largest[bit] = max(largest[bit], outputs.least_bytes[output])
        for bit in range(len(totals) if held else 0):
            totals[bit] += largest[bit]
            largest[bit] = 0
