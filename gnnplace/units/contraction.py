"""Contracts units along heavy edges, as multilevel partitioners coarsen graphs (Karypis and Kumar, 1998)."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Int64

from gnnplace.compiled import kernel
from gnnplace.graph import ComputationGraph

FLOPS_PER_BYTE = 16  # the weight of arithmetic against memory traffic in a load; GPUs since the K40 have 13 to 20


def contract(
    graph: ComputationGraph, label: Int64[np.ndarray, " ops"], rules: Int64[np.ndarray, " ops"], limit: int
) -> Int64[np.ndarray, " ops"]:
    """Labels after merging units along edges, heaviest first, until `limit` are left.

    The cap on the load of a unit doubles each round.
    """
    unit = np.unique(label, return_inverse=True)[1].reshape(-1)
    work = graph.effective_bytes_accessed + graph.flops // FLOPS_PER_BYTE + 1
    total = int(work.sum())
    cap = 2 * total // limit
    while (count := int(unit.max()) + 1) > limit:
        rule, load = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        rule[unit] = rules
        np.add.at(load, unit, work)
        first, second = _mergeable(graph, unit, rule)
        if not len(first):
            break  # the remaining units have different device rules
        merged = merge_under(first, second, load, min(cap, total), count - limit)[unit]
        unit = np.unique(merged, return_inverse=True)[1].reshape(-1)
        cap *= 2
    return unit


def _mergeable(
    graph: ComputationGraph, unit: Int64[np.ndarray, " ops"], rule: Int64[np.ndarray, " units"]
) -> Int64[np.ndarray, "2 pairs"]:
    """Pairs of units with equal rules: connected units, most bytes first, then units without such a neighbour.

    The latter are paired in graph order.
    """
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


@kernel
@no_type_check
def merge_under(first, second, load, cap, surplus):
    """Merges pairs in order, at most `surplus` of them, if the load of the merged unit is at most `cap`."""
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
