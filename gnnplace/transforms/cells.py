"""Coarse units: cells of layer x time step x phase, the state of a layer in one, contracted until at most 1,000 are left.

The finest depth of name scopes that gives no more cells than that is taken, so that wavefronts over layers and time steps can
be told apart. What has neither a layer nor a time step stays as it is until heavy edges are contracted (Karypis and Kumar, 1998).
"""

from __future__ import annotations

from typing import no_type_check

import numba
import numpy as np
from jaxtyping import Int64

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.transforms.variables import families, merged

LIMIT = 1000
FLOPS_PER_BYTE = 16  # weighs arithmetic against traffic when work is balanced; GPUs since the K40 do 13 to 20
STATE = -2  # the phase and time step of a cell of variables


def coarse(graph: ComputationGraph, group: Int64[np.ndarray, " ops"], limit: int = LIMIT) -> Int64[np.ndarray, " ops"]:
    """Labels of at most `limit` units (or as few as legality leaves); `group` is the colocation closure."""
    group = merged(group, families(graph, group).owner)
    key = _keys(graph, group)
    label, depth = group, 0
    deepest = max((value.count("/") + 1 for value in graph.layer.values), default=0)
    while True:
        finer = _merge_cells(graph, group, key, depth)
        if depth > 0 and len(np.unique(finer)) > limit and len(np.unique(label)) >= limit // 4:
            break
        label = finer
        if depth == deepest or len(np.unique(finer)) > limit:
            break
        depth += 1
    return _contract(graph, label, limit)


def _keys(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, "ops 4"]:
    """Per op: legality, block, time step and phase; those of the first op with the most persistent memory, for a group with any."""
    found = families(graph, group)
    key = np.stack([_legality(graph, group), graph.block, graph.time_step, graph.phase.index], axis=1).astype(np.int64)
    key[found.owner != NONE, 2:] = STATE
    return key


def _leader(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The op that speaks for each op's group: the one with the most persistent memory, the lowest index on a tie."""
    rows = np.lexsort((-np.arange(graph.num_ops), graph.persistent_bytes))
    leader = np.empty(graph.num_ops, dtype=np.int64)
    leader[group[rows]] = rows
    return leader[group]


def _legality(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """A number for each group's set of rules about where its ops may stand; only groups of equal rules are merged."""
    given = np.unique(graph.given_time_ns != NONE, axis=0, return_inverse=True)[1].reshape(-1) if graph.given_keys else 0
    rule = np.unique(np.stack([graph.allowed.index, np.broadcast_to(given, graph.num_ops)], axis=1), axis=0, return_inverse=True)[
        1
    ].reshape(-1)
    distinct = np.unique(np.stack([group, rule], axis=1), axis=0)
    rules: dict[int, tuple[int, ...]] = {}
    for label, number in distinct.tolist():
        rules[label] = (*rules.get(label, ()), number)
    table = {found: index for index, found in enumerate(sorted(set(rules.values())))}
    number_of = np.zeros(graph.num_ops, dtype=np.int64)
    number_of[list(rules)] = [table[found] for found in rules.values()]
    return number_of[group]


def _merge_cells(
    graph: ComputationGraph, group: Int64[np.ndarray, " ops"], key: Int64[np.ndarray, "ops 4"], depth: int
) -> Int64[np.ndarray, " ops"]:
    """Labels that join the groups whose leaders share a cell, with layers cut to `depth` scopes."""
    scopes = ["/".join(value.split("/")[:depth]) for value in graph.layer.values]
    number = {scope: index for index, scope in enumerate(dict.fromkeys(scopes))}
    layer = np.array([number[scope] for scope in scopes] + [NONE], dtype=np.int64)[graph.layer.index]
    leader = _leader(graph, group)
    cell = np.concatenate([layer[:, None], key], axis=1)[leader]
    known = (cell[:, 0] != NONE) | (cell[:, 3] >= 0)
    index = np.unique(cell, axis=0, return_inverse=True)[1].reshape(-1)
    return merged(group, np.where(known, index, NONE))


def _contract(graph: ComputationGraph, label: Int64[np.ndarray, " ops"], limit: int) -> Int64[np.ndarray, " ops"]:
    """Labels after joining units along heavy edges, the heaviest first and up to a load that doubles each round, until `limit` are left."""
    unit = np.unique(label, return_inverse=True)[1].reshape(-1)
    rules = _legality(graph, label)
    work = graph.effective_bytes_accessed + graph.flops // FLOPS_PER_BYTE + 1
    cap = 2 * int(work.sum()) // limit
    while (count := int(unit.max()) + 1) > limit:
        rule, load = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        rule[unit] = rules
        np.add.at(load, unit, work)
        first, second = _mergeable(graph, unit, rule)
        if not len(first):
            break  # what is left stands under different rules
        unit = np.unique(_merge_under(first, second, load, cap, count - limit)[unit], return_inverse=True)[1].reshape(-1)
        cap *= 2
    return unit


def _mergeable(graph: ComputationGraph, unit: Int64[np.ndarray, " ops"], rule: Int64[np.ndarray, " units"]) -> Int64[np.ndarray, "2 pairs"]:
    """Pairs of connected units under one rule, most bytes first; then those without such a neighbour, paired in the order of the graph."""
    count = len(rule)
    low, high = np.sort(np.stack([unit[graph.edge_src], unit[graph.edge_dst]]), axis=0)
    inside = (low != high) & (rule[low] == rule[high])
    pairs, index = np.unique(low[inside] * count + high[inside], return_inverse=True)
    carried = np.bincount(index, weights=graph.edge_bytes[inside], minlength=len(pairs))
    heaviest = pairs[np.argsort(-carried, kind="stable")]
    connected = np.stack([heaviest // count, heaviest % count])
    position = np.empty(len(rule), dtype=np.int64)
    position[unit[graph.order[::-1]]] = np.arange(graph.num_ops)[::-1]
    alone = np.setdiff1d(np.arange(count), connected)
    alone = alone[np.lexsort((position[alone], rule[alone]))]
    same = rule[alone[:-1]] == rule[alone[1:]]
    return np.concatenate([connected, np.stack([alone[:-1], alone[1:]])[:, same]], axis=1)


@numba.njit(cache=True)
@no_type_check
def _merge_under(first, second, load, cap, surplus):
    """Joins pairs in their order, `surplus` times at most, where the load of what is joined stays under the cap."""
    into = np.arange(len(load))
    held = load.copy()
    for k in range(len(first)):
        a, b = first[k], second[k]
        while into[a] != a:
            into[a] = into[into[a]]
            a = into[a]
        while into[b] != b:
            into[b] = into[into[b]]
            b = into[b]
        if surplus > 0 and a != b and held[a] + held[b] <= cap:
            low, high = min(a, b), max(a, b)
            into[high] = low
            held[low] += held[high]
            surplus -= 1
    for a in range(len(into)):
        root = a
        while into[root] != root:
            root = into[root]
        into[a] = root
    return into
