"""Grows fused groups op by op: a visited op merges its group with that of the first neighbour that the rules allow.

Two groups must not be merged if a path from one to the other passes a third group: that would make a cycle. Groups stay
in a topological order, so the search for such a path visits only groups between the two (Pearce and Kelly, 2006). After
a merge, the groups that the search visited move behind the merged group. The order is a linked list whose entries have
increasing numbers with gaps (Dietz and Sleator, 1987).
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt64

from gnnplace.compiled import kernel, part
from gnnplace.fusion.rules import leaders, rules
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import Problem

MOST_OPS = 64  # of a group
MOST_MASKS = 63  # kinds of devices that `_masks` distinguishes


class Tries(NamedTuple):
    """Pairs of ops that may be fused: `op` tries to merge with `neighbour` when it is visited."""

    op: Int64[np.ndarray, " tries"]
    neighbour: Int64[np.ndarray, " tries"]


def tries(graph: ComputationGraph, edges: Bool[np.ndarray, " edges"], backward: Bool[np.ndarray, " ops"]) -> Tries:
    """The pairs along some data edges, sorted by op, then by falling bytes, then by neighbour.

    A `backward` op tries its readers, any other op its producers.
    """
    fusable = rules(graph).fusable
    chosen = np.flatnonzero(edges & (graph.edge_data != NONE) & fusable[graph.edge_src] & fusable[graph.edge_dst])
    src, dst, size = (
        graph.edge_src[chosen].astype(np.int64),
        graph.edge_dst[chosen].astype(np.int64),
        graph.edge_bytes[chosen],
    )
    reads, read = ~backward[dst], backward[src]
    op, neighbour = np.concatenate([dst[reads], src[read]]), np.concatenate([src[reads], dst[read]])
    rows = np.lexsort((neighbour, -np.concatenate([size[reads], size[read]]), op))
    return Tries(op[rows], neighbour[rows])


def grown(
    problem: Problem,
    order: Int32[np.ndarray, " ops"],
    pairs: Tries,
    device: Int32[np.ndarray, " ops"] | None,
    most_ops: int,
) -> Int32[np.ndarray, " ops"]:
    """The fusion (the leader of each op) after visiting the ops in `order`.

    Groups obey the rules of fusion and have at most `most_ops` ops. If `device` is given, the ops of a group have one
    device. Some device allows all ops of a group and all ops that are colocated with them.
    """
    if most_ops < 1:
        raise ValueError(f"most_ops: {most_ops} is less than 1")
    graph = problem.graph
    colocated = _colocated(graph)
    ptr = np.searchsorted(pairs.op, np.arange(graph.num_ops + 1)).astype(np.int64)
    label = _grow(
        order.astype(np.int64), ptr, pairs.neighbour, graph.order, graph.out_ptr, graph.edge_dst, rules(graph).heavy,
        colocated,
        _masks(problem, colocated), np.zeros(graph.num_ops, np.int32) if device is None else device.copy(), most_ops,
    )  # fmt: skip
    return leaders(label)


def _colocated(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The first op of each op's colocation group."""
    first = np.arange(graph.num_ops, dtype=np.int64)
    members = np.flatnonzero(graph.colocation.index != NONE)
    _, leader, group = np.unique(graph.colocation.index[members], return_index=True, return_inverse=True)
    first[members] = members[leader[group]]
    return first


def _masks(problem: Problem, colocated: Int64[np.ndarray, " ops"]) -> UInt64[np.ndarray, " ops"]:
    """A bit for each kind of device that allows an op and all that is colocated with it; devices alike in what they
    allow are a kind.
    """
    kinds = list({column.tobytes(): column for column in problem.allowed.T}.values())[:MOST_MASKS]
    mask = np.zeros(len(colocated), dtype=np.uint64)
    for bit, allows in enumerate(kinds):
        mask |= allows.astype(np.uint64) << np.uint64(bit)
    np.bitwise_and.at(mask, colocated, mask.copy())
    return mask[colocated]


@kernel
@no_type_check
def _grow(order, ptr, neighbour, sequence, out_ptr, reader, heavy, colocated, mask, device, most_ops):
    ops = len(order)
    # the label of each op's group, and the next op of the group, in a ring
    group, following = np.arange(ops), np.arange(ops)
    size, weight = np.ones(ops, np.int64), heavy.astype(np.int64)
    tied = colocated.copy()  # ops that must stand on one device, as a forest
    place, left, right = _listed(sequence)
    seen, queue, searches = np.zeros(ops, np.int64), np.empty(ops, np.int64), 0
    for op in order:
        for position in range(ptr[op], ptr[op + 1]):
            other = neighbour[position]
            first, last = group[op], group[other]
            if (
                first == last
                or size[first] + size[last] > most_ops
                or weight[first] + weight[last] > 1
                or device[op] != device[other]
            ):
                continue
            a, b = _root(tied, op), _root(tied, other)
            if mask[a] & mask[b] == 0:
                continue
            if place[first] > place[last]:
                first, last = last, first
            searches += 1
            count = _behind(first, last, out_ptr, reader, group, following, place, seen, searches, queue)
            if count < 0:
                continue
            tied[max(a, b)] = min(a, b)
            mask[min(a, b)] = mask[a] & mask[b]
            into, joins = (first, last) if size[first] > size[last] else (last, first)
            size[into] += size[joins]
            weight[into] += weight[joins]
            member = joins
            while group[member] != into:
                group[member] = into
                member = following[member]
            following[into], following[joins] = following[joins], following[into]
            _unlink(first, left, right)
            if into == first:
                _link(first, last, place[last], place, left, right)
                _unlink(last, left, right)
            _move_behind(into, queue[:count], place, left, right)
            break
    return group


@part
@no_type_check
def _root(parent, op):
    while parent[op] != op:
        parent[op] = parent[parent[op]]
        op = parent[op]
    return op


@part
@no_type_check
def _behind(first, last, out_ptr, reader, group, following, place, seen, search, queue):
    """Fills `queue` with the groups before `last` that edges lead to from `first`; returns how many, -1 where one leads
    to `last`.
    """
    count, done, here = 0, 0, first
    seen[first] = search
    while True:
        op = here
        while True:
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                there = group[reader[edge]]
                if there == last:
                    if here != first:
                        return -1
                elif seen[there] != search and place[there] < place[last]:
                    seen[there] = search
                    queue[count] = there
                    count += 1
            op = following[op]
            if op == here:
                break
        if done == count:
            return count
        here = queue[done]
        done += 1


@part
@no_type_check
def _listed(sequence):
    """A linked list in the order of `sequence`: numbers that grow along it, and neighbours.

    Its last entry is both ends.
    """
    ops = len(sequence)
    place, left, right = np.empty(ops + 1, np.int64), np.empty(ops + 1, np.int64), np.empty(ops + 1, np.int64)
    before = ops
    for op in sequence:
        left[op], right[before] = before, op
        before = op
    left[ops], right[before] = before, ops
    _number(place, right)
    return place, left, right


@part
@no_type_check
def _number(place, right):
    """Numbers the list anew, with equal distances."""
    end = len(place) - 1
    distance, here, at = (2**62) // len(place), right[end], 0
    while here != end:
        place[here] = at
        at += distance
        here = right[here]
    place[end] = at


@part
@no_type_check
def _unlink(node, left, right):
    left[right[node]], right[left[node]] = left[node], right[node]


@part
@no_type_check
def _link(node, after, number, place, left, right):
    """Puts a node after another."""
    place[node] = number
    left[node], right[node] = after, right[after]
    left[right[after]] = right[after] = node


@part
@no_type_check
def _move_behind(node, moved, place, left, right):
    """Moves nodes to right behind another, in their order."""
    moved = moved[np.argsort(place[moved])]
    for other in moved:
        _unlink(other, left, right)
    if place[right[node]] - place[node] <= len(moved):
        _number(place, right)
    distance = (place[right[node]] - place[node]) // (len(moved) + 1)
    for other in moved:
        _link(other, node, place[node] + distance, place, left, right)
        node = other
