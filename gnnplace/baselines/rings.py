"""The order of devices in a ring, one whose slowest hop is as fast as possible, and rings of their own for nodes.

As NCCL looks for rings (NVIDIA, 2017). Of eight V100s in a DGX-1 each has NVLink to four others; a ring in the order of
their numbers would pass PCIe twice. Between nodes NCCL sums along trees, of which each link carries no more than of
rings across nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.cluster import NO_LINK, Cluster
from gnnplace.problems import NS_PER_S
from gnnplace.transformations.ring import BUCKET_BYTES

FASTER = 2.0  # times as fast as a hop to another node: one in a node
STEPS = 100_000  # of a search for a ring through some hops; none is found in time only among very many devices


def ring(cluster: Cluster, devices: Int64[np.ndarray, " devices"]) -> Int64[np.ndarray, " devices"]:
    """The devices in the order of a ring whose slowest hop is as fast as possible; of several, as they are given.

    >>> from gnnplace.corpus import clusters
    >>> dgx = clusters.cluster("v100-8")
    >>> [dgx.device_names[device] for device in ring(dgx, dgx.accelerators)]
    ['gpu:0', 'gpu:3', 'gpu:2', 'gpu:1', 'gpu:5', 'gpu:6', 'gpu:7', 'gpu:4']
    """
    hop_ns = _hops(cluster, devices)
    slowest = hop_ns[np.arange(len(devices)), np.roll(np.arange(len(devices)), -1)].max(initial=0.0)
    for limit in np.unique(hop_ns[hop_ns < slowest]).tolist():
        if (order := _through(hop_ns <= limit)) is not None:
            return devices[order]
    return devices


def _hops(cluster: Cluster, devices: Int64[np.ndarray, " devices"]) -> Float[np.ndarray, "devices devices"]:
    """The time of a hop of a full bucket's chunk from each device to each other one, infinite without a link."""
    chunk = BUCKET_BYTES / max(len(devices), 1)
    each = [
        link.overhead_ns + link.latency_ns + chunk * NS_PER_S / link.bandwidth_bytes_per_s for link in cluster.links
    ]
    link = cluster.link_index[np.ix_(devices, devices)]
    return np.array([*each, np.inf])[np.where(link == NO_LINK, -1, link)]


def _through(hops: Bool[np.ndarray, "devices devices"]) -> list[int] | None:
    """The first ring through all devices over these hops, in the order of numbers; None without one."""
    if not _joined(hops):
        return None
    count, path, steps = len(hops), [0], 0
    rest: list[Iterator[int]] = [iter(np.flatnonzero(hops[0]).tolist())]
    while path and steps < STEPS:
        steps += 1
        if (there := next(rest[-1], None)) is None:
            rest.pop()
            path.pop()
        elif there not in path:
            path.append(there)
            if len(path) == count and hops[there, 0]:
                return path
            rest.append(iter(np.flatnonzero(hops[there]).tolist()))
    return None


def size_of_nodes(cluster: Cluster, devices: Int64[np.ndarray, " devices"]) -> int:
    """How many of the devices, in the order of a ring, make a node: runs of so many have faster hops among themselves.

    Their slowest hop is over twice as fast as the fastest between runs. 0 if all make one.

        >>> from gnnplace.corpus import clusters
        >>> nodes = clusters.cluster("2 nodes of 2x t4, pcie3, ethernet-10")
        >>> size_of_nodes(nodes, nodes.accelerators), size_of_nodes(nodes, nodes.accelerators[:3])
        (2, 0)
    """
    hop_ns, number = _hops(cluster, devices), np.arange(len(devices))
    for size in range(len(devices) // 2, 1, -1):
        same = np.equal.outer(number // size, number // size)
        inside, between = hop_ns[same & ~np.eye(len(number), dtype=bool)], hop_ns[~same]
        if len(devices) % size == 0 and FASTER * inside.max() < between.min():
            return size
    return 0


def _joined(hops: Bool[np.ndarray, "devices devices"]) -> bool:
    """Whether these hops lead from each device to each other one."""
    reached = hops | np.eye(len(hops), dtype=bool)
    for _ in range(len(hops).bit_length()):
        reached = (reached.astype(np.float32) @ reached.astype(np.float32)) > 0
    return bool(reached.all())
