"""What stands and falls with a variable: its state and update, and the gradients and sums that only this update needs.

A weight gradient is as large as its weight; parted from its sum or its update it crosses a link at every time step. Nothing
here needs metadata: state is what has persistent memory, a read or an in-place update is an alias of it. Phases sharpen it.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numba
import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.graph import CONTROL, NONE, ComputationGraph

SCALAR_BYTES = 8  # a tensor this small (a norm, a learning rate, a power of beta) binds nothing together


class Families(NamedTuple):
    """`owner[i]` is the label of the family that op i belongs to, `NONE` outside. `state` are its variables, reads and updates."""

    owner: Int64[np.ndarray, " ops"]
    state: Bool[np.ndarray, " ops"]


def with_their_users(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels that join every family, and the users of each family by phase and block; `group` is the colocation closure."""
    found = families(graph, group)
    used = _used_family(graph, found)
    label = merged(group, found.owner)
    users = np.flatnonzero((used != NONE) & (found.owner == NONE))
    keys = np.stack([used[users], graph.phase.index[users], graph.block[users]], axis=1)
    joined = np.full(graph.num_ops, NONE, dtype=np.int64)
    joined[users] = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1) if len(users) else 0
    return merged(label, joined)


def families(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Families:
    """The family of every op: state first, then backwards the gradients that one update alone needs, then their norms."""
    large = (graph.edge_bytes > SCALAR_BYTES) | (graph.persistent_bytes[graph.edge_src] > SCALAR_BYTES)
    binds = (graph.edge_output != CONTROL) & large
    stateful = graph.persistent_bytes > SCALAR_BYTES
    label = merged(group, _root_op(graph, stateful))
    updated = binds & _holds(label, stateful)[graph.edge_src] & _updates(graph)[graph.edge_dst]
    label = _join(label, graph.edge_src, graph.edge_dst, updated)
    state = _holds(label, stateful)
    owner = np.where(state, label, NONE)
    size = np.zeros(graph.num_ops, dtype=np.int64)
    np.maximum.at(size, label, graph.persistent_bytes)
    _own(graph.order, graph.out_ptr, graph.edge_dst, graph.in_ptr, graph.in_edges, graph.edge_src, binds,
         *_eligible(graph), size, owner)  # fmt: skip
    return Families(owner, state)


def merged(label: Int64[np.ndarray, " ops"], key: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels that join whole labels wherever ops share a key; ops of key `NONE` ask for nothing."""
    asks = np.flatnonzero(key != NONE)
    first = np.full(int(key.max(initial=0)) + 1, len(label), dtype=np.int64)
    np.minimum.at(first, key[asks], asks)
    return _join(label, asks, first[key[asks]], np.ones(len(asks), dtype=bool))


def _holds(label: Int64[np.ndarray, " ops"], stateful: Bool[np.ndarray, " ops"]) -> Bool[np.ndarray, " ops"]:
    """Which ops share a label with one that is stateful."""
    held = np.zeros(len(label), dtype=bool)
    held[label[stateful]] = True
    return held[label]


def _root_op(graph: ComputationGraph, stateful: Bool[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """For a variable, and an op with an alias of one among its outputs: the variable's op; else `NONE`."""
    root = np.where(stateful, np.arange(graph.num_ops), NONE)
    variable = graph.output_op[graph.output_root].astype(np.int64)
    aliases = np.flatnonzero((graph.output_alias != NONE) & stateful[variable])
    root[graph.output_op[aliases]] = variable[aliases]
    return root


def _updates(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """Ops of the phase `update`; where an op has no phase, those that give no data."""
    gives = np.zeros(graph.num_ops, dtype=bool)
    gives[graph.output_op[graph.output_bytes > 0]] = True
    return graph.phase.among(["update"]) | ((graph.phase.index == NONE) & ~gives)


def _eligible(graph: ComputationGraph) -> tuple[Bool[np.ndarray, " ops"], Bool[np.ndarray, " ops"], Int64[np.ndarray, " ops"]]:
    """Which ops may join a family by their phase, which have none and join by their size, and the size of their largest output."""
    largest = np.zeros(graph.num_ops, dtype=np.int64)
    np.maximum.at(largest, graph.output_op, graph.output_bytes)
    return graph.phase.among(["backward_weight", "update"]), graph.phase.index == NONE, largest


def _used_family(graph: ComputationGraph, found: Families) -> Int64[np.ndarray, " ops"]:
    """The family whose state an op takes the most bytes from, the lowest label on a tie; `NONE` where it takes none."""
    family = np.where(found.state, found.owner, NONE)[graph.edge_src]
    rows = np.flatnonzero((graph.edge_output != CONTROL) & (family != NONE) & (graph.edge_bytes > SCALAR_BYTES))
    rows = rows[np.lexsort((family[rows], -graph.edge_bytes[rows]))]
    used = np.full(graph.num_ops, NONE, dtype=np.int64)
    used[graph.edge_dst[rows[::-1]]] = family[rows[::-1]]
    return used


@numba.njit(cache=True)
@no_type_check
def _join(label, first, second, wanted):
    """Union of the labels of `first[k]` and `second[k]` wherever `wanted[k]`; a set's label is the lowest in it."""
    parent = np.arange(len(label))
    for k in range(len(first)):
        if wanted[k]:
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


@numba.njit(cache=True)
@no_type_check
def _own(order, out_ptr, edge_dst, in_ptr, in_edges, edge_src, binds, by_phase, by_size, largest, size, owner):
    """Consumers first: an op joins the one family that takes all it gives. Then producers first: or that gives all it takes."""
    for op in order[::-1]:
        if owner[op] == -1 and (by_phase[op] or by_size[op]):
            found = -1
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                family = owner[edge_dst[edge]]
                if binds[edge] and (family != -1 or largest[edge_dst[edge]] > SCALAR_BYTES):  # its norm asks for nothing
                    found = family if found in (-1, family) and family != -1 else -2
            if found >= 0 and (by_phase[op] or largest[op] >= size[found] // 2):
                owner[op] = found
    for op in order:
        if owner[op] == -1 and by_phase[op]:
            found = -1
            for position in range(in_ptr[op], in_ptr[op + 1]):
                if binds[in_edges[position]]:
                    family = owner[edge_src[in_edges[position]]]
                    found = family if found in (-1, family) and family != -1 else -2
            if found >= 0:
                owner[op] = found
