"""The undirected graph of units in CSR form, which partitioners cut, and mean times of its transfers.

Each edge is listed at both of its ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64, Shaped

from gnnplace.problems import Problem
from gnnplace.units.units import UnitEdges


class Adjacency(NamedTuple):
    """The neighbours of unit u are `neighbour[ptr[u]:ptr[u+1]]`, sorted.

    `weight` sums all edges between two units in both directions.
    """

    ptr: Int64[np.ndarray, " units_plus_1"]
    neighbour: Int64[np.ndarray, " ends"]
    weight: Float[np.ndarray, " ends"]


def adjacency(edges: UnitEdges, num_units: int, weight: Float[np.ndarray, " edges"]) -> Adjacency:
    """The undirected graph of `edges`; the weights of parallel edges are summed."""
    low, high = np.minimum(edges.src, edges.dst).astype(np.int64), np.maximum(edges.src, edges.dst)
    pairs, index = np.unique(low * num_units + high, return_inverse=True)
    # bincount gives integers for no edges
    total = np.bincount(index, weights=weight, minlength=len(pairs)).astype(np.float64)
    ends = np.concatenate([pairs, pairs % num_units * num_units + pairs // num_units])
    order = np.argsort(ends)
    ptr = np.searchsorted(ends[order] // num_units, np.arange(num_units + 1)).astype(np.int64)
    return Adjacency(ptr, ends[order] % num_units, np.tile(total, 2)[order])


def whole(weight: Shaped[np.ndarray, " weights"], largest: float) -> Int64[np.ndarray, " weights"]:
    """Integer weights for partitioners, in proportion: at least 1 and about `largest` at most."""
    return np.maximum(1, np.rint(weight * min(1.0, largest / float(weight.max(initial=1.0))))).astype(np.int64)


def mean_transfer_ns(
    problem: Problem, devices: Int64[np.ndarray, " devices"], carried: Int64[np.ndarray, " edges"]
) -> Float[np.ndarray, " edges"]:
    """The time in ns that each edge's bytes take on a mean link between the devices.

    If there are no links, the bytes themselves.
    """
    names = [problem.cluster.device_names[device] for device in devices]
    links = [link for link in problem.cluster.links if link.src in names and link.dst in names]
    if not links:
        return carried.astype(np.float64)
    hops = [1 if link.receive_channel is None else 2 for link in links]
    per_byte = np.mean([count * 1e9 / link.bandwidth_bytes_per_s for count, link in zip(hops, links, strict=True)])
    return carried * per_byte + np.mean(
        [count * link.overhead_ns + link.latency_ns for count, link in zip(hops, links, strict=True)]
    )
