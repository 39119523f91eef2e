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


class _Groups(NamedTuple):
    """Groups of ops. The kernels merge groups in place."""

    label: Int64[np.ndarray, " ops"]  # of each op's group: one of its ops
    following: Int64[np.ndarray, " ops"]  # the next op of the same group, in a ring
    size: Int64[np.ndarray, " ops"]  # by label: the number of ops
    heavy: Int64[np.ndarray, " ops"]  # by label: the number of heavy ops
    device: Int32[np.ndarray, " ops"]
    tied: Int64[np.ndarray, " ops"]  # a forest whose trees are the ops that must stand on one device
    mask: UInt64[np.ndarray, " ops"]  # by root of a tree: the kinds of devices that allow all its ops


class _Edges(NamedTuple):
    """The out-edges of op i lead to `reader[out_ptr[i]:out_ptr[i+1]]`; `order` is a topological order."""

    order: Int32[np.ndarray, " ops"]
    out_ptr: Int64[np.ndarray, " ops_plus_1"]
    reader: Int32[np.ndarray, " edges"]


class _Line(NamedTuple):
    """Groups in topological order: a linked list, by label, with numbers that increase along it.

    Its last entry is both ends.
    """

    place: Int64[np.ndarray, " ops_plus_1"]
    left: Int64[np.ndarray, " ops_plus_1"]
    right: Int64[np.ndarray, " ops_plus_1"]


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
    groups = _Groups(
        label=np.arange(graph.num_ops),
        following=np.arange(graph.num_ops),
        size=np.ones(graph.num_ops, np.int64),
        heavy=rules(graph).heavy.astype(np.int64),
        device=np.zeros(graph.num_ops, np.int32) if device is None else device.copy(),
        tied=colocated.copy(),
        mask=_masks(problem, colocated),
    )
    edges = _Edges(graph.order, graph.out_ptr, graph.edge_dst)
    _grow(order.astype(np.int64), ptr, pairs.neighbour, edges, groups, most_ops)
    return leaders(groups.label)


def _colocated(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The first op of each op's colocation group."""
    first = np.arange(graph.num_ops, dtype=np.int64)
    members = np.flatnonzero(graph.colocation.index != NONE)
    _, leader, group = np.unique(graph.colocation.index[members], return_index=True, return_inverse=True)
    first[members] = members[leader[group]]
    return first


def _masks(problem: Problem, colocated: Int64[np.ndarray, " ops"]) -> UInt64[np.ndarray, " ops"]:
    """For each op a bit for each kind of device that allows the op and all ops colocated with it.

    Devices that allow the same ops are one kind.
    """
    kinds = list({column.tobytes(): column for column in problem.allowed.T}.values())[:MOST_MASKS]
    mask = np.zeros(len(colocated), dtype=np.uint64)
    for bit, allows in enumerate(kinds):
        mask |= allows.astype(np.uint64) << np.uint64(bit)
    np.bitwise_and.at(mask, colocated, mask.copy())
    return mask[colocated]


@kernel
@no_type_check
def _grow(visits, ptr, neighbour, edges, groups, most_ops):
    """Visits ops in order; op i tries to merge with `neighbour[ptr[i]:ptr[i+1]]`."""
    line = _listed(edges.order)
    seen, queue, searches = np.zeros(len(visits), np.int64), np.empty(len(visits), np.int64), 0
    for op in visits:
        for position in range(ptr[op], ptr[op + 1]):
            other = neighbour[position]
            if not _fit(groups, op, other, most_ops):
                continue
            first, last = groups.label[op], groups.label[other]
            if line.place[first] > line.place[last]:
                first, last = last, first
            searches += 1
            count = _between(first, last, edges, groups, line.place, seen, searches, queue)
            if count < 0:
                continue
            _tie(groups, op, other)
            merged = _merge(groups, first, last)
            _reorder(line, first, last, merged, queue[:count])
            break


@part
@no_type_check
def _fit(groups, op, other, most_ops):
    """Whether the groups of two ops differ and together obey every rule but that against cycles."""
    first, last = groups.label[op], groups.label[other]
    if (
        first == last
        or groups.size[first] + groups.size[last] > most_ops
        or groups.heavy[first] + groups.heavy[last] > 1
        or groups.device[op] != groups.device[other]
    ):
        return False
    return groups.mask[_root(groups.tied, op)] & groups.mask[_root(groups.tied, other)] != 0


@part
@no_type_check
def _tie(groups, op, other):
    """Joins the trees of two ops that must stand on one device."""
    a, b = _root(groups.tied, op), _root(groups.tied, other)
    groups.tied[max(a, b)] = min(a, b)
    groups.mask[min(a, b)] = groups.mask[a] & groups.mask[b]


@part
@no_type_check
def _root(parent, op):
    """The root of an op's tree; it shortens the path to it."""
    while parent[op] != op:
        parent[op] = parent[parent[op]]
        op = parent[op]
    return op


@part
@no_type_check
def _merge(groups, first, last):
    """Merges two groups into the larger of them and returns its label."""
    label, following = groups.label, groups.following
    into, joins = (first, last) if groups.size[first] > groups.size[last] else (last, first)
    groups.size[into] += groups.size[joins]
    groups.heavy[into] += groups.heavy[joins]
    member = joins
    while label[member] != into:
        label[member] = into
        member = following[member]
    following[into], following[joins] = following[joins], following[into]
    return into


@part
@no_type_check
def _between(first, last, edges, groups, place, seen, search, queue):
    """Fills `queue` with the groups before `last` to which paths lead from `first`, and returns their number.

    Returns -1 if a path over such a group leads to `last`. `seen` has the number of the search that met a group last.
    """
    count, done, here = 0, 0, first
    seen[first] = search
    while True:
        op = here
        while True:
            for edge in range(edges.out_ptr[op], edges.out_ptr[op + 1]):
                reader = groups.label[edges.reader[edge]]
                if reader == last:
                    if here != first:
                        return -1
                elif seen[reader] != search and place[reader] < place[last]:
                    seen[reader] = search
                    queue[count] = reader
                    count += 1
            op = groups.following[op]
            if op == here:
                break
        if done == count:
            return count
        here = queue[done]
        done += 1


@part
@no_type_check
def _listed(order):
    """The line of single ops in a topological order."""
    ops = len(order)
    line = _Line(np.empty(ops + 1, np.int64), np.empty(ops + 1, np.int64), np.empty(ops + 1, np.int64))
    before = ops
    for op in order:
        line.left[op], line.right[before] = before, op
        before = op
    line.left[ops], line.right[before] = before, ops
    _number(line)
    return line


@part
@no_type_check
def _number(line):
    """Renumbers the line with equal distances."""
    end = len(line.place) - 1
    distance, node, number = (2**62) // len(line.place), line.right[end], 0
    while node != end:
        line.place[node] = number
        number += distance
        node = line.right[node]
    line.place[end] = number


@part
@no_type_check
def _reorder(line, first, last, merged, behind):
    """Puts the merged group of two where the last was, and the groups `behind` to right behind it."""
    _unlink(line, first)
    if merged == first:
        _link(line, first, last, line.place[last])
        _unlink(line, last)
    _move_behind(line, merged, behind)


@part
@no_type_check
def _unlink(line, node):
    line.left[line.right[node]], line.right[line.left[node]] = line.left[node], line.right[node]


@part
@no_type_check
def _link(line, node, after, number):
    """Puts a node right behind `after`."""
    line.place[node] = number
    line.left[node], line.right[node] = after, line.right[after]
    line.left[line.right[after]] = line.right[after] = node


@part
@no_type_check
def _move_behind(line, node, moved):
    """Moves nodes to right behind another, in their order."""
    moved = moved[np.argsort(line.place[moved])]
    for other in moved:
        _unlink(line, other)
    if line.place[line.right[node]] - line.place[node] <= len(moved):
        _number(line)
    distance = (line.place[line.right[node]] - line.place[node]) // (len(moved) + 1)
    for other in moved:
        _link(line, other, node, line.place[node] + distance)
        node = other
