"""What every placement of a graph holds at once: the most bytes that are alive while some op runs, wherever they are.

While an op runs, an output lies somewhere if an ancestor produced it and a descendant, or the op itself, has yet to
read it, whatever the placement and the order: on the device that produced it, or where it was sent. So all memories
together hold at least the persistent bytes, these outputs, those of the op and its workspace. The largest of these sums
over ops is the *need* of the graph. An alias may lie in a smaller buffer than its root, if only the alias was sent; of
each root the largest output counts that is so held.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.compiled import kernel
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.schedules.buffers import buffers

# for which it is computed what is alive while they run; those of a larger graph are spread evenly over its order
MOST_OPS = 8192
WORD = 64  # ops for which one pass over the graph does


class Need(NamedTuple):
    """The bytes that every placement holds while `op` runs: what is persistent, and all else."""

    op: int
    persistent_bytes: int
    alive_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.persistent_bytes + self.alive_bytes


_needs: WeakKeyDictionary[ComputationGraph, Need] = WeakKeyDictionary()


def need(graph: ComputationGraph, among: Bool[np.ndarray, " ops"] | None = None) -> Need:
    """The most bytes that every placement of a graph is known to hold at once on all devices together.

    With `among`, of the step of these ops alone: of persistent bytes, those count that one of them holds or reads.
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


def alive_bytes(
    graph: ComputationGraph, ops: Int64[np.ndarray, " some"], among: Bool[np.ndarray, " ops"]
) -> Int64[np.ndarray, " some"]:
    """The bytes of outputs that are alive in every placement of the ops `among` while each of `ops` runs."""
    by_root = np.argsort(graph.output_root, kind="stable")
    root_ptr = np.searchsorted(graph.output_root[by_root], np.arange(len(by_root) + 1))
    totals = np.zeros(len(ops), dtype=np.int64)
    _alive(
        graph.order, graph.out_ptr, graph.edge_dst, graph.edge_data, graph.output_ptr, graph.output_op,
        graph.output_is_result,
        by_root, root_ptr, least_bytes(graph), among, ops, totals,
    )  # fmt: skip
    return totals


def least_bytes(graph: ComputationGraph) -> Int64[np.ndarray, " outputs"]:
    """The least size of a buffer that holds each output: the smallest output along its chain of aliases."""
    held, least = buffers(graph), graph.output_bytes.astype(np.int64)
    for output, named in zip(held.alias.tolist(), held.alias_of.tolist(), strict=True):
        least[output] = min(least[output], least[named])
    return least


@kernel
@no_type_check
def _alive(
    order, out_ptr, edge_dst, edge_data, output_ptr, output_op, is_result, by_root, root_ptr, least, among, ops, totals
):
    """Each bit of a word stands for one of up to `WORD` ops."""
    # the ops whose ancestor, whose descendant an op is
    before, after = np.zeros(len(order), np.uint64), np.zeros(len(order), np.uint64)
    awaited, largest = np.zeros(len(output_op), np.uint64), np.zeros(WORD, np.int64)
    one, every = np.uint64(1), ~np.uint64(0)
    for first in range(0, len(ops), WORD):
        count = min(WORD, len(ops) - first)
        before[:] = 0
        after[:] = 0
        for bit in range(count):
            before[ops[first + bit]] |= one << np.uint64(bit)
            after[ops[first + bit]] |= one << np.uint64(bit)
        for op in order:
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                after[edge_dst[edge]] |= after[op]
        for output in range(len(output_op)):
            awaited[output] = every if is_result[output] else np.uint64(0)
        for bit in range(count):
            for output in range(output_ptr[ops[first + bit]], output_ptr[ops[first + bit] + 1]):
                awaited[output] |= one << np.uint64(bit)
        for op in order[::-1]:
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                there = edge_dst[edge]
                before[op] |= before[there]
                if among[there] and edge_data[edge] != NONE:
                    awaited[edge_data[edge]] |= after[there]
        for root in range(len(root_ptr) - 1):
            held = np.uint64(0)
            for place in range(root_ptr[root], root_ptr[root + 1]):
                output = by_root[place]
                alive = awaited[output] & before[output_op[output]]
                held |= alive
                for bit in range(count if alive else 0):
                    if alive >> np.uint64(bit) & one:
                        largest[bit] = max(largest[bit], least[output])
            for bit in range(count if held else 0):
                totals[first + bit] += largest[bit]
                largest[bit] = 0
