"""The undirected graph of units in CSR form, which partitioners cut. Each edge is listed at both of its ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Shaped

from gnnplace.units.units import UnitEdges


class Adjacency(NamedTuple):
    """The neighbours of unit u are `neighbour[ptr[u]:ptr[u+1]]`, sorted. `weight` sums all edges between two units in both directions."""

    ptr: Int64[np.ndarray, " units_plus_1"]
    neighbour: Int64[np.ndarray, " ends"]
    weight: Float[np.ndarray, " ends"]


def adjacency(edges: UnitEdges, num_units: int, weight: Float[np.ndarray, " edges"]) -> Adjacency:
    """The undirected graph of `edges`; the weights of parallel edges are summed."""
    low, high = np.minimum(edges.src, edges.dst).astype(np.int64), np.maximum(edges.src, edges.dst)
    pairs, index = np.unique(low * num_units + high, return_inverse=True)
    total = np.bincount(index, weights=weight, minlength=len(pairs)).astype(np.float64)  # bincount gives integers for no edges
    ends = np.concatenate([pairs, pairs % num_units * num_units + pairs // num_units])
    order = np.argsort(ends)
    ptr = np.searchsorted(ends[order] // num_units, np.arange(num_units + 1)).astype(np.int64)
    return Adjacency(ptr, ends[order] % num_units, np.tile(total, 2)[order])


def whole(weight: Shaped[np.ndarray, " weights"], largest: float) -> Int64[np.ndarray, " weights"]:
    """Integer weights for partitioners, in proportion: at least 1 and about `largest` at most."""
    return np.maximum(1, np.rint(weight * min(1.0, largest / float(weight.max(initial=1.0))))).astype(np.int64)
