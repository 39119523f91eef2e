"""The mean time of transfers between units, for planners that weigh edges before devices are known."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.problems import Problem


def mean_transfer_ns(
    problem: Problem, devices: Int64[np.ndarray, " devices"], carried: Int64[np.ndarray, " edges"]
) -> Float[np.ndarray, " edges"]:
    """The time of each edge's bytes on a mean link between these devices, in ns; the bytes themselves if there are no links."""
    names = [problem.cluster.device_names[device] for device in devices]
    links = [link for link in problem.cluster.links if link.src in names and link.dst in names]
    if not links:
        return carried.astype(np.float64)
    hops = [1 if link.receive_channel is None else 2 for link in links]
    per_byte = np.mean([count * 1e9 / link.bandwidth_bytes_per_s for count, link in zip(hops, links, strict=True)])
    return carried * per_byte + np.mean([count * link.overhead_ns + link.latency_ns for count, link in zip(hops, links, strict=True)])
