"""Builds the cluster presets: `python datasets/build/clusters.py` writes `datasets/clusters/*.json`.

The figures and their sources are explained in datasets/clusters/README.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus.manifest import folder
from gnnplace.formats import atomic
from gnnplace.formats.clusters import cluster_document

GIB, MIB = 2**30, 2**20
GIGA, TERA = 10**9, 10**12


class Wire(NamedTuple):
    """What a directed link between two devices offers."""

    bandwidth_bytes_per_s: int
    latency_ns: int
    overhead_ns: int = 2000


def cpu(memory_bytes: int, flops_per_s: int, memory_bytes_per_s: int) -> Device:
    return Device("cpu:0", "cpu", memory_bytes, flops_per_s, memory_bytes_per_s, launch_ns=1000, dispatch_ns=200)


def gpu(memory_bytes: int, memory_bytes_per_s: int, **flops_per_s: int) -> Device:
    return Device("gpu:0", "gpu", memory_bytes, flops_per_s, memory_bytes_per_s, launch_ns=5000, dispatch_ns=200)


HASWELL = cpu(64 * GIB, 500 * GIGA, 60 * GIGA)
BROADWELL = cpu(256 * GIB, 600 * GIGA, 65 * GIGA)
SAPPHIRE_RAPIDS = cpu(1024 * GIB, 3 * TERA, 250 * GIGA)
ALDER_LAKE = cpu(64 * GIB, 450 * GIGA, 62 * GIGA)
K40 = gpu(11_420 * MIB, 288 * GIGA, float32=4_290 * GIGA, float16=4_290 * GIGA, bfloat16=4_290 * GIGA, float64=1_430 * GIGA)
P100 = gpu(15_900 * MIB, 732 * GIGA, float32=9_300 * GIGA, float16=18_700 * GIGA, bfloat16=9_300 * GIGA, float64=4_700 * GIGA)
V100 = gpu(15_800 * MIB, 900 * GIGA, float32=15_700 * GIGA, float16=125 * TERA, bfloat16=15_700 * GIGA, float64=7_800 * GIGA)
H200 = gpu(143_000 * MIB, 4_800 * GIGA, float32=67 * TERA, float16=989 * TERA, bfloat16=989 * TERA, float64=34 * TERA)
FLEX170 = gpu(15_800 * MIB, 576 * GIGA, float32=16 * TERA, float16=128 * TERA, bfloat16=128 * TERA, float64=500 * GIGA)

HOST_PCIE3, HOST_PCIE3_X8, PEER_PCIE3 = Wire(12 * GIGA, 8_000), Wire(6 * GIGA, 8_000), Wire(10 * GIGA, 10_000)
ACROSS_HOST = Wire(5 * GIGA, 15_000)
NVLINK2 = {1: Wire(25 * GIGA, 5_000), 2: Wire(50 * GIGA, 5_000)}
HOST_PCIE4 = Wire(25 * GIGA, 5_000)
HOST_PCIE5, NVSWITCH = Wire(50 * GIGA, 5_000), Wire(450 * GIGA, 5_000)
LOOPBACK = Wire(2 * GIGA, 200_000)

# NVLinks between the GPUs of a DGX-1 with V100 (hybrid cube mesh), as `nvidia-smi topo -m` prints them
DGX1_NVLINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def link(src: str, dst: str, wire: Wire) -> Link:
    return Link(src, dst, wire.bandwidth_bytes_per_s, overhead_ns=wire.overhead_ns, latency_ns=wire.latency_ns)


def uniform(name: str, host: Device, card: Device, num_gpus: int, to_host: Wire, to_peer: Wire) -> Cluster:
    """A host and equal GPUs, every pair linked."""
    devices = (host, *(replace(card, name=f"gpu:{index}") for index in range(num_gpus)))
    pairs = permutations([device.name for device in devices], 2)
    return Cluster(name, devices, tuple(link(src, dst, to_host if "cpu:0" in (src, dst) else to_peer) for src, dst in pairs))


def dgx1() -> Cluster:
    """Eight V100: NVLink where the mesh has one, PCIe elsewhere."""
    plain = uniform("v100-8", BROADWELL, V100, 8, HOST_PCIE3, PEER_PCIE3)
    wires = {frozenset((f"gpu:{a}", f"gpu:{b}")): NVLINK2[links] for (a, b), links in DGX1_NVLINKS.items()}
    links = (link(old.src, old.dst, wires[pair]) if (pair := frozenset((old.src, old.dst))) in wires else old for old in plain.links)
    return Cluster(plain.name, plain.devices, tuple(links))


def mixed() -> Cluster:
    """Two K40 on half-width slots (gpu:0, gpu:1) and two V100 joined by NVLink (gpu:2, gpu:3)."""
    slow, fast = ("gpu:0", "gpu:1"), ("gpu:2", "gpu:3")
    devices = (HASWELL, *(replace(K40, name=name) for name in slow), *(replace(V100, name=name) for name in fast))

    def wire(src: str, dst: str) -> Wire:
        ends = {src, dst}
        if "cpu:0" in ends:
            return HOST_PCIE3_X8 if ends & set(slow) else HOST_PCIE3
        if ends <= set(fast):
            return NVLINK2[2]
        return PEER_PCIE3 if ends <= set(slow) else ACROSS_HOST

    pairs = permutations([device.name for device in devices], 2)
    return Cluster("mixed-4", devices, tuple(link(src, dst, wire(src, dst)) for src, dst in pairs))


def two_cores() -> Cluster:
    """Two processes, each pinned to a core of one machine."""
    core = cpu(8 * GIB, 50 * GIGA, 10 * GIGA)
    devices = (core, replace(core, name="cpu:1"))
    return Cluster("cpu-2", devices, (link("cpu:0", "cpu:1", LOOPBACK), link("cpu:1", "cpu:0", LOOPBACK)))


def presets() -> tuple[Cluster, ...]:
    """Every preset."""
    return (
        *(uniform(f"k40-{count}", HASWELL, K40, count, HOST_PCIE3, PEER_PCIE3) for count in (2, 4, 8)),
        uniform("p100-8", BROADWELL, P100, 8, HOST_PCIE3, PEER_PCIE3),
        dgx1(),
        uniform("flex170-1", ALDER_LAKE, FLEX170, 1, HOST_PCIE4, HOST_PCIE4),
        uniform("h200-8", SAPPHIRE_RAPIDS, H200, 8, HOST_PCIE5, NVSWITCH),
        mixed(),
        two_cores(),
    )


def text(cluster: Cluster) -> str:
    """The document with one device or link a line."""
    document = cluster_document(cluster)
    rows = {key: ",\n".join(f"  {json.dumps(row)}" for row in document.pop(key)) for key in ("devices", "links")}
    return json.dumps(document)[:-1] + "".join(f',\n "{key}": [\n{block}]' for key, block in rows.items()) + "}\n"


def main() -> None:
    (folder() / "clusters").mkdir(parents=True, exist_ok=True)
    for cluster in presets():
        atomic.write_text(folder() / "clusters" / f"{cluster.name}.json", text(cluster))


if __name__ == "__main__":
    main()
