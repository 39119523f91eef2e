"""The order in which list schedulers take ops: the ready op of highest priority first.

Ops without cost (variables, reads, constants) delay no one. Each comes just before its first consumer, which is its
leader.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.compiled import kernel, part_allocates_nothing
from gnnplace.graph import ComputationGraph


class Sequence(NamedTuple):
    """`op` is a topological order. `leader[i]` is the op for which op i was added, or i itself if it has a cost."""

    op: Int64[np.ndarray, " ops"]
    leader: Int64[np.ndarray, " ops"]


def sequence(graph: ComputationGraph, priority: Float[np.ndarray, " ops"]) -> Sequence:
    """The ready op of highest priority first; ties go by the topological order of the graph."""
    by_priority = numbered(graph, priority)
    free = ~costly(graph)
    return Sequence(
        *_sequence(by_priority, free, graph.out_ptr, graph.edge_dst, graph.in_ptr, graph.in_edges, graph.edge_src)
    )


def numbered(graph: ComputationGraph, priority: Float[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """All ops by falling priority; ties go by the topological order of the graph."""
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    return np.lexsort((position, -priority))


def costly(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for ops with a cost: those with a kernel, and those with an ancestor that has one."""
    return _costly(graph.order, graph.out_ptr, graph.edge_dst, graph.kernel)


@no_type_check
@kernel
def _costly(order, out_ptr, edge_dst, kernel):
    costs = kernel.copy()
    for op in order:
        if costs[op]:
            costs[edge_dst[out_ptr[op] : out_ptr[op + 1]]] = True
    return costs


@no_type_check
@kernel
def _sequence(by_priority, free, out_ptr, edge_dst, in_ptr, in_edges, edge_src):
    ops = len(by_priority)
    sequence, leader, count, stack = np.empty(ops, np.int64), np.full(ops, -1), 0, np.empty(len(edge_src) + 1, np.int64)
    number, waiting = np.empty(ops, np.int64), costly_inputs(free, in_ptr, in_edges, edge_src)
    for place in range(ops):
        number[by_priority[place]] = place
    ready = [number[op] for op in range(ops) if waiting[op] == 0 and not free[op]]
    heapq.heapify(ready)
    while len(ready) > 0:
        first = by_priority[heapq.heappop(ready)]
        count = append_after_inputs(first, sequence, leader, count, stack, in_ptr, in_edges, edge_src)
        for edge in range(out_ptr[first], out_ptr[first + 1]):
            waiting[edge_dst[edge]] -= 1
            if waiting[edge_dst[edge]] == 0:
                heapq.heappush(ready, number[edge_dst[edge]])
    for first in by_priority:
        if leader[first] == -1:
            count = append_after_inputs(first, sequence, leader, count, stack, in_ptr, in_edges, edge_src)
    return sequence, leader


@no_type_check
@kernel
def costly_inputs(free, in_ptr, in_edges, edge_src):
    """The number of in-edges of each op from ops with a cost."""
    waiting = np.zeros(len(free), np.int64)
    for op in range(len(free)):
        for position in range(in_ptr[op], in_ptr[op + 1]):
            waiting[op] += not free[edge_src[in_edges[position]]]
    return waiting


@no_type_check
@part_allocates_nothing
def append_after_inputs(first, sequence, leader, count, stack, in_ptr, in_edges, edge_src):
    """Appends the inputs of an op that have no leader yet, then the op, their leader.

    Returns the new length; `stack` is working memory.
    """
    stack[0], height = first, 1
    while height > 0:
        op, waits = stack[height - 1], False
        if leader[op] == -1:
            for position in range(in_ptr[op], in_ptr[op + 1]):
                src = edge_src[in_edges[position]]
                if leader[src] == -1:
                    stack[height] = src
                    height, waits = height + 1, True
        if waits:
            continue
        height -= 1
        if leader[op] == -1:
            sequence[count], leader[op] = op, first
            count += 1
    return count
