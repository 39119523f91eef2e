"""Clusters drawn from a distribution: machines that people have, in numbers and with links that presets don't fix.

A policy that shall place on unseen clusters trains on many of them. The same number always draws the same cluster.
"""

from __future__ import annotations

import numpy as np

from gnnplace.cluster import Cluster, Device, Link

CPU_NAME = "cpu:0"
# float32 and half-precision flops/s, memory bytes/s and bytes of accelerators, from entry to data-centre class, rounded
ACCELERATORS = (
    (4_000, 4_000, 290, 12), (9_000, 18_000, 480, 11), (10_000, 20_000, 720, 16), (15_000, 120_000, 900, 16),
    (19_000, 310_000, 1_550, 40), (60_000, 900_000, 3_300, 80),
)  # fmt: skip
MOST_ACCELERATORS = 8


def drawn(number: int) -> Cluster:
    """Cluster `number`: a CPU and 1 to 8 accelerators of one or two kinds, in one or two islands of fast links."""
    draw = np.random.default_rng([number, 0xC1])
    count = int(draw.integers(1, MOST_ACCELERATORS + 1))
    kinds = draw.choice(len(ACCELERATORS), size=1 if draw.random() < 0.7 else 2)
    split = int(draw.integers(1, count + 1)) if len(kinds) == 2 else count
    devices = [_cpu(draw)] + [_accelerator(index, ACCELERATORS[kinds[int(index >= split)]]) for index in range(count)]
    island = int(draw.integers(1, count + 1))
    host, near, far = (
        int(1e9 * np.exp(draw.uniform(np.log(low), np.log(high)))) for low, high in ((5, 30), (8, 300), (4, 25))
    )
    overhead_ns = int(draw.integers(1_000, 6_000))
    links = []
    for a, src in enumerate(devices):
        for b, dst in enumerate(devices):
            if a != b:
                bandwidth = host if 0 in (a, b) else near if (a <= island) == (b <= island) else min(near, far)
                links.append(Link(src.name, dst.name, bandwidth, overhead_ns, 8_000 if bandwidth != far else 15_000))
    return Cluster(f"drawn-{number}", tuple(devices), tuple(links))


def _cpu(draw: np.random.Generator) -> Device:
    gflops, gigabytes_per_s = int(draw.integers(300, 3_000)), int(draw.integers(40, 300))
    return Device(
        CPU_NAME, "cpu", 64 * 2**30, gflops * 10**9, gigabytes_per_s * 10**9, launch_ns=1_000, dispatch_ns=200
    )


def _accelerator(index: int, kind: tuple[int, int, int, int]) -> Device:
    single, half, gigabytes_per_s, gigabytes = kind
    rates = {
        "float32": single * 10**9,
        "float16": half * 10**9,
        "bfloat16": half * 10**9,
        "float64": single * 10**9 // 4,
    }
    return Device(
        f"gpu:{index}", "gpu", gigabytes * 10**9, rates, gigabytes_per_s * 10**9, launch_ns=5_000, dispatch_ns=200
    )
