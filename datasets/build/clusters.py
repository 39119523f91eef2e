"""Builds the cluster presets: `python datasets/build/clusters.py` writes `datasets/clusters/*.json`.

The figures and their sources are explained in datasets/clusters/README.md.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from gnnplace.cluster import Cluster, Device
from gnnplace.corpus import hardware
from gnnplace.corpus.assembly import linked
from gnnplace.corpus.cluster_text import described_cluster
from gnnplace.corpus.hardware import Wire, connection
from gnnplace.corpus.manifest import folder
from gnnplace.formats.clusters import write_cluster

GIB, MIB = 2**30, 2**20
GIGA, TERA = 10**9, 10**12


def device(name: str) -> Device:
    """A device of the table of hardware."""
    part = hardware.part(name)
    return part.device(f"{part.kind}:0")


HASWELL, BROADWELL, SAPPHIRE_RAPIDS, ALDER_LAKE = map(device, ("haswell", "broadwell", "sapphire-rapids", "alder-lake"))
K40, P100, V100, H200 = map(device, ("k40", "p100-pcie", "v100-sxm2", "h200-sxm"))
FLEX170_RATES = {"float32": 16 * TERA, "float16": 128 * TERA, "bfloat16": 128 * TERA, "float64": 500 * GIGA}
FLEX170 = Device("gpu:0", "gpu", 15_800 * MIB, FLEX170_RATES, 576 * GIGA, launch_ns=5000, dispatch_ns=200)

HOST_PCIE3, HOST_PCIE3_X8, HOST_PCIE4, HOST_PCIE5 = (connection(name).wire for name in ("pcie3", "pcie3-x8", "pcie4", "pcie5"))
PEER_PCIE3, ACROSS_HOST = Wire(10 * GIGA, 10_000), Wire(5 * GIGA, 15_000)
NVLINK2 = {1: Wire(25 * GIGA, 5_000), 2: Wire(50 * GIGA, 5_000)}
NVSWITCH, LOOPBACK = Wire(450 * GIGA, 5_000), Wire(2 * GIGA, 200_000)

DESCRIBED = {
    "h100-8": "8x h100-sxm + sapphire-rapids, nvlink4",
    "a100-4": "4x a100-sxm-80 + epyc-milan, nvlink3",
    "rtx4090-2": "2x rtx-4090 + raptor-lake, pcie4",
}

# NVLinks between the GPUs of a DGX-1 with V100 (hybrid cube mesh), as `nvidia-smi topo -m` prints them
DGX1_NVLINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def uniform(name: str, host: Device, card: Device, num_gpus: int, to_host: Wire, to_peer: Wire) -> Cluster:
    """A host and equal GPUs, every pair linked."""
    devices = (host, *(replace(card, name=f"gpu:{index}") for index in range(num_gpus)))
    pairs = permutations([device.name for device in devices], 2)
    return Cluster(name, devices, tuple(linked(src, dst, to_host if "cpu:0" in (src, dst) else to_peer) for src, dst in pairs))


def dgx1() -> Cluster:
    """Eight V100: NVLink where the mesh has one, PCIe elsewhere."""
    plain = uniform("v100-8", BROADWELL, V100, 8, HOST_PCIE3, PEER_PCIE3)
    wires = {frozenset((f"gpu:{a}", f"gpu:{b}")): NVLINK2[links] for (a, b), links in DGX1_NVLINKS.items()}
    links = (linked(old.src, old.dst, wires[pair]) if (pair := frozenset((old.src, old.dst))) in wires else old for old in plain.links)
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
    return Cluster("mixed-4", devices, tuple(linked(src, dst, wire(src, dst)) for src, dst in pairs))


def two_cores() -> Cluster:
    """Two processes, each pinned to a core of one machine."""
    core = Device("cpu:0", "cpu", 8 * GIB, 50 * GIGA, 10 * GIGA, launch_ns=1000, dispatch_ns=200)
    devices = (core, replace(core, name="cpu:1"))
    return Cluster("cpu-2", devices, (linked("cpu:0", "cpu:1", LOOPBACK), linked("cpu:1", "cpu:0", LOOPBACK)))


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
        *(described_cluster(text, name) for name, text in DESCRIBED.items()),
    )


def main() -> None:
    (folder() / "clusters").mkdir(parents=True, exist_ok=True)
    for cluster in presets():
        write_cluster(folder() / "clusters" / f"{cluster.name}.json", cluster)


if __name__ == "__main__":
    main()
