"""The family of a variable: its state and its update, and the gradients and sums that only this update needs.

A weight gradient is as large as its weight. On another device than its sum or its update, it would cross a link at
every time step. Families need no metadata: state is an op with persistent bytes, and a read or an in-place update is an
alias of it. Phases make families more precise.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Int64, Integer

from gnnplace.choices import FREELY
from gnnplace.compiled import kernel
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.units.numbers import row_numbers

SCALAR_BYTES = 8  # a tensor this small (a norm, a learning rate, a power of beta) joins nothing


class Families(NamedTuple):
    """The families of a graph.

    `owner[i]` is the label of the family of op i, or `NONE`. `state[i]` is True if op i is a variable, a read or an
    update.
    """

    owner: Int64[np.ndarray, " ops"]
    state: Bool[np.ndarray, " ops"]


def with_their_users(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels that merge every family, and the users of each family by phase and block.

    Copies that may stand on devices of their own merge with no other copy: a gradient of theirs is in no family.
    `group` is the colocation closure.
    """
    ownership, copy = families(graph, group), _free_copy(graph)
    family = _used_family(graph, ownership)
    owner = np.where((copy == NONE) | ownership.state, ownership.owner, NONE)
    label = merged(group, owner)
    users = np.flatnonzero((family != NONE) & (owner == NONE))
    keys = np.full(graph.num_ops, NONE, dtype=np.int64)
    columns = (family[users], graph.phase.index[users], graph.block[users], copy[users])
    keys[users] = row_numbers(np.stack(columns, axis=1))
    return merged(label, keys)


def _free_copy(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The micro-batch of each op that is a copy with a device of its own, or `NONE`."""
    copies = graph.copies
    if copies is None or copies.placed not in FREELY:
        return np.full(graph.num_ops, NONE, dtype=np.int64)
    return np.where(copies.added, NONE, copies.micro_batch).astype(np.int64)


def families(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Families:
    """The family of every op.

    The state comes first, then, in reverse order, the gradients that only its update needs, then their norms.
    """
    large = (graph.edge_bytes > SCALAR_BYTES) | (graph.persistent_bytes[graph.edge_src] > SCALAR_BYTES)
    binds = (graph.edge_output != CONTROL) & large
    stateful = graph.persistent_bytes > SCALAR_BYTES
    label = merged(group, _root_op(graph, stateful))
    updated = binds & _holds(label, stateful)[graph.edge_src] & _updates(graph)[graph.edge_dst]
    label = join(label, graph.edge_src[updated], graph.edge_dst[updated])
    state = _holds(label, stateful)
    owner = np.where(state, label, NONE)
    size = np.zeros(graph.num_ops, dtype=np.int64)
    np.maximum.at(size, label, graph.persistent_bytes)
    _own(graph.order, graph.out_ptr, graph.edge_dst, graph.in_ptr, graph.in_edges, graph.edge_src, binds,
         *_eligible(graph), size, owner)  # fmt: skip
    return Families(owner, state)


def merged(label: Int64[np.ndarray, " ops"], key: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels after merging all labels whose ops share a key. Ops with the key `NONE` merge nothing."""
    ops = np.flatnonzero(key != NONE)
    first = np.full(int(key.max(initial=0)) + 1, len(label), dtype=np.int64)
    np.minimum.at(first, key[ops], ops)
    return join(label, ops, first[key[ops]])


def _holds(label: Int64[np.ndarray, " ops"], stateful: Bool[np.ndarray, " ops"]) -> Bool[np.ndarray, " ops"]:
    """True for ops that share a label with a stateful op."""
    held = np.zeros(len(label), dtype=bool)
    held[label[stateful]] = True
    return held[label]


def _root_op(graph: ComputationGraph, stateful: Bool[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """For a variable, and for an op with an output that is an alias of one, the op of the variable; else `NONE`."""
    root = np.where(stateful, np.arange(graph.num_ops), NONE)
    variable = graph.output_op[graph.output_root].astype(np.int64)
    aliases = np.flatnonzero((graph.output_alias != NONE) & stateful[variable])
    root[graph.output_op[aliases]] = variable[aliases]
    return root


def _updates(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for ops of the phase `update`, and for ops without a phase that produce no data."""
    gives = np.zeros(graph.num_ops, dtype=bool)
    gives[graph.output_op[graph.output_bytes > 0]] = True
    return graph.phase.among(["update"]) | ((graph.phase.index == NONE) & ~gives)


def _eligible(
    graph: ComputationGraph,
) -> tuple[Bool[np.ndarray, " ops"], Bool[np.ndarray, " ops"], Int64[np.ndarray, " ops"]]:
    """Masks of the ops that may join a family by their phase, and of the ops without a phase; each op's largest output.

    The size of the largest output is in bytes.
    """
    largest = np.zeros(graph.num_ops, dtype=np.int64)
    np.maximum.at(largest, graph.output_op, graph.output_bytes)
    return graph.phase.among(["backward_weight", "update"]), graph.phase.index == NONE, largest


def _used_family(graph: ComputationGraph, ownership: Families) -> Int64[np.ndarray, " ops"]:
    """The family from whose state each op reads the most bytes, the lowest label on a tie, or `NONE`."""
    family = np.where(ownership.state, ownership.owner, NONE)[graph.edge_src]
    rows = np.flatnonzero((graph.edge_output != CONTROL) & (family != NONE) & (graph.edge_bytes > SCALAR_BYTES))
    rows = rows[np.lexsort((family[rows], -graph.edge_bytes[rows]))]
    used = np.full(graph.num_ops, NONE, dtype=np.int64)
    used[graph.edge_dst[rows[::-1]]] = family[rows[::-1]]
    return used


def join(
    label: Int64[np.ndarray, " ops"], first: Integer[np.ndarray, " pairs"], second: Integer[np.ndarray, " pairs"]
) -> Int64[np.ndarray, " ops"]:
    """The union of the labels of `first[k]` and `second[k]`. The label of a set is its lowest member."""
    return _join(label, first.astype(np.int64), second.astype(np.int64))


@kernel
@no_type_check
def _join(label, first, second):
    parent = np.arange(len(label))
    for k in range(len(first)):
        a, b = label[first[k]], label[second[k]]
        while parent[a] != a:
            a = parent[a]
        while parent[b] != b:
            b = parent[b]
        low, high = min(a, b), max(a, b)
        parent[high] = low
        parent[label[first[k]]] = low
        parent[label[second[k]]] = low
    joined = np.empty_like(label)
    for op in range(len(label)):
        a = label[op]
        while parent[a] != a:
            a = parent[a]
        joined[op] = a
    return joined


@kernel
@no_type_check
def _own(order, out_ptr, edge_dst, in_ptr, in_edges, edge_src, binds, by_phase, by_size, largest, size, owner):
    """Extends families in place.

    In reverse order, an op joins a family that reads all its outputs. Then, in order, an op joins a family that
    produces all its inputs.
    """
    for op in order[::-1]:
        if owner[op] == -1 and (by_phase[op] or by_size[op]):
            sole = -1
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                family = owner[edge_dst[edge]]
                if binds[edge] and (family != -1 or largest[edge_dst[edge]] > SCALAR_BYTES):  # a norm does not count
                    sole = family if sole in (-1, family) and family != -1 else -2
            if sole >= 0 and (by_phase[op] or largest[op] >= size[sole] // 2):
                owner[op] = sole
    for op in order:
        if owner[op] == -1 and by_phase[op]:
            sole = -1
            for position in range(in_ptr[op], in_ptr[op + 1]):
                if binds[in_edges[position]]:
                    family = owner[edge_src[in_edges[position]]]
                    sole = family if sole in (-1, family) and family != -1 else -2
            if sole >= 0:
                owner[op] = sole
