"""Rings of devices against enumeration of all."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from gnnplace.baselines.rings import ring, size_of_nodes
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import clusters
from gnnplace.sources import graphs


def machine(gigabytes_per_s: dict[tuple[int, int], int], count: int) -> Cluster:
    devices = tuple(Device(f"gpu:{number}", "gpu", 2**34, 10**12, 10**12) for number in range(count))
    links = tuple(Link(f"gpu:{src}", f"gpu:{dst}", rate * 10**9) for (src, dst), rate in gigabytes_per_s.items())
    return Cluster("machine", devices, links)


def slowest(rates: dict[tuple[int, int], int], order: list[int]) -> int:
    return min(rates.get(hop, 0) for hop in zip(order, [*order[1:], order[0]], strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_no_ring_has_a_faster_slowest_hop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    pairs = [(src, dst) for src in range(count) for dst in range(count) if src != dst and rng.random() < 0.8]
    rates = {pair: int(rng.choice([1, 10, 25, 50])) for pair in pairs}
    found = ring(machine(rates, count), np.arange(count)).tolist()
    assert sorted(found) == list(range(count))
    best = max(slowest(rates, [0, *rest]) for rest in permutations(range(1, count)))
    assert slowest(rates, found) == best
    if slowest(rates, list(range(count))) == best:
        assert found == list(range(count))


def test_a_ring_of_v100s_has_nvlink_alone() -> None:
    cluster = clusters.cluster("v100-8")
    order = ring(cluster, cluster.accelerators)
    links = cluster.link_index[order, np.roll(order, -1)]
    assert {cluster.links[link].bandwidth_bytes_per_s for link in links.tolist()} == {50 * 10**9}


@pytest.mark.parametrize("name", ["k40-4", "mixed-4", "h200-8"])
def test_a_ring_has_the_order_of_the_cluster_where_none_is_faster(name: str) -> None:
    cluster = clusters.cluster(name)
    assert ring(cluster, cluster.accelerators).tolist() == cluster.accelerators.tolist()


@pytest.mark.parametrize("some", [[], [2], [1, 0]])
def test_a_ring_of_few(some: list[int]) -> None:
    assert ring(machine({}, 3), np.array(some, dtype=np.int64)).tolist() == some


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("k40-4", 0), ("mixed-4", 0), ("v100-8", 0), ("2 nodes of 4x h100-sxm, nvlink4, infiniband-ndr", 4),
        ("3 nodes of 2x t4, pcie3, ethernet-10", 2), ("2 nodes of 1x t4, pcie3, ethernet-10", 0),
    ],
)  # fmt: skip
def test_devices_of_a_node_are_near_each_other(text: str, size: int) -> None:
    cluster = graphs.cluster(text)
    assert size_of_nodes(cluster, ring(cluster, cluster.accelerators)) == size
