"""Shares of the micro-batches of a step in which devices of one kind have as many as each other, or one more."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.cluster import Cluster
from gnnplace.graph import NONE

NEAREST, MOST = 12, 20_000  # shares that are returned, and between which they are chosen
FASTER = 2.0  # times the bandwidth to others: two devices with such a link to others are not near each other


def share_vectors(
    cluster: Cluster, devices: Int64[np.ndarray, " devices"], ns: Float[np.ndarray, " devices"], micro_batches: int
) -> Int64[np.ndarray, "vectors devices"]:
    """The `NEAREST` shares that are nearest to those by speed; `ns` is the time of a micro-batch on each device.

    Only some are considered where kinds are many: those in which every kind has about its share.
    """
    kind, ns = kinds(cluster, devices, ns), np.maximum(ns, 1.0)
    size = np.bincount(kind)
    even = micro_batches * np.bincount(kind, 1 / ns) / (1 / ns).sum()
    totals = _totals(even, micro_batches)
    totals = totals[np.argsort(np.abs(totals - even).sum(axis=1), kind="stable")[:NEAREST]]
    place = np.zeros(len(devices), dtype=np.int64)  # of each device among those of its kind
    for number in range(len(size)):
        place[kind == number] = np.arange(size[number])
    whole, more = np.divmod(totals, size)
    return whole[:, kind] + (place >= (size - more)[:, kind])


def kinds(
    cluster: Cluster, devices: Int64[np.ndarray, " devices"], ns: Float[np.ndarray, " devices"]
) -> Int64[np.ndarray, " devices"]:
    """The kind of each device: those of one kind are equally fast and near each other, as in a node."""
    link = cluster.link_index[np.ix_(devices, devices)]
    bandwidth = np.array([*(each.bandwidth_bytes_per_s for each in cluster.links), 0.0])[
        np.where(link == NONE, -1, link)
    ]
    np.fill_diagonal(bandwidth, 0.0)
    most = bandwidth.max(axis=1)
    near = (FASTER * bandwidth >= np.minimum(most[:, None], most)) & (bandwidth > 0)
    kind = np.arange(len(devices))
    for here, there in np.argwhere(near & np.isclose(ns, ns[:, None], rtol=1e-3)).tolist():
        kind[kind == kind[there]] = kind[here]
    return np.unique(kind, return_inverse=True)[1]


def _totals(even: Float[np.ndarray, " kinds"], micro_batches: int) -> Int64[np.ndarray, "totals kinds"]:
    """Numbers of micro-batches for each kind: all that there are, or those near the even ones."""
    count = len(even)
    if comb(micro_batches + count - 1, count - 1) <= MOST:
        bars = np.array(list(combinations(range(micro_batches + count - 1), count - 1)), dtype=np.int64)
        bars = bars.reshape(len(bars), count - 1)
        ends = np.full((len(bars), 1), micro_batches + count - 1)
        return np.diff(np.concatenate([np.full_like(ends, -1), bars, ends], axis=1), axis=1) - 1
    totals = np.floor(even).astype(np.int64)
    totals[np.argsort(totals - even, kind="stable")[: micro_batches - totals.sum()]] += 1
    one = np.eye(count, dtype=np.int64)
    moved = [totals + one[here] - one[there] for here in range(count) for there in range(count)]
    return np.unique([each for each in moved if each.min() >= 0], axis=0)
