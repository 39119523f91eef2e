"""Measured links: fits bandwidth, overhead and latency to transfers of several sizes, for the links of a cluster.

In the execution model a transfer occupies its channel for `overhead + bytes / bandwidth`. It then occupies the receive
channel, if there is one, for the same time. It arrives `latency` after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnnplace.cluster import MAX_RATE, Cluster, Link
from gnnplace.costs.measured import LinkSample, MeasuredCosts
from gnnplace.costs.robust_fit import fit
from gnnplace.problems import NS_PER_S


@dataclass(frozen=True)
class LinkFit:
    """The fitted constants of a link, and the median relative error of the channel times that they predict."""

    bandwidth_bytes_per_s: int
    overhead_ns: int
    latency_ns: int
    median_error: float


def fit_link(samples: Sequence[LinkSample], hops: int = 1) -> LinkFit:
    """The link constants with the least absolute error of the logarithm of channel times.

    So outliers and the number of small transfers don't matter. `hops` is the number of channels that a transfer
    occupies, one after another. Raises ValueError for transfers of fewer than two sizes, which do not determine
    overhead and bandwidth.
    """
    size, occupied, arrival = np.array(samples, dtype=float).reshape(-1, 3).T
    sizes = np.unique(size)
    if len(sizes) < 2:
        raise ValueError(
            f"{len(samples)} transfers of {len(sizes)} sizes; two sizes at least tell overhead from bandwidth"
        )
    latency = max(0, round(float(np.median(arrival - hops * occupied))))
    occupied = np.maximum(1, occupied)
    smallest, largest = (float(np.median(occupied[size == end])) for end in (sizes[0], sizes[-1]))
    start = np.array([smallest, max(largest - smallest, 1e-3 * largest) / (sizes[-1] - sizes[0])])
    overhead, ns_per_byte = fit(
        lambda figures: figures[0] + figures[1] * size, start, occupied, np.ones(len(size))
    ).parameters
    error = np.median(np.abs(overhead + ns_per_byte * size - occupied) / occupied)
    bandwidth = min(MAX_RATE, max(1, round(NS_PER_S / ns_per_byte)))
    return LinkFit(bandwidth, round(float(overhead)), latency, float(error))


def measured(cluster: Cluster, costs: Sequence[MeasuredCosts]) -> Cluster:
    """The cluster with fitted constants of every measured link. The other links (`unmeasured`) keep theirs.

    Samples of several cost files are pooled. Raises ValueError if all samples of a link have one size.
    """
    # links between devices of the same kinds share samples
    fits: dict[tuple[int, tuple[LinkSample, ...]], LinkFit] = {}
    links = []
    for link in cluster.links:
        samples = _samples(link, cluster, costs)
        key = (1 if link.receive_channel is None else 2, samples)
        if samples and key not in fits:
            try:
                fits[key] = fit_link(samples, key[0])
            except ValueError as error:
                raise ValueError(f"link {link.src} -> {link.dst}: {error}") from error
        links.append(_fitted(link, fits[key]) if samples else link)
    return replace(cluster, links=tuple(links))


def unmeasured(cluster: Cluster, costs: Sequence[MeasuredCosts]) -> list[Link]:
    """The links of a cluster without samples."""
    return [link for link in cluster.links if not _samples(link, cluster, costs)]


def _samples(link: Link, cluster: Cluster, costs: Sequence[MeasuredCosts]) -> tuple[LinkSample, ...]:
    devices = dict(zip(cluster.device_names, cluster.devices, strict=True))
    return tuple(sample for part in costs for sample in part.link_samples(link, devices))


def _fitted(link: Link, figures: LinkFit) -> Link:
    return replace(
        link,
        bandwidth_bytes_per_s=figures.bandwidth_bytes_per_s,
        overhead_ns=figures.overhead_ns,
        latency_ns=figures.latency_ns,
    )
