"""This machine as a cluster: a CPU device for each core that this process may use, which copies by itself, as `torch_processes` has it.

The rates are placeholders that a calibration replaces; the memory is an equal share of the machine's.
"""

from __future__ import annotations

import os
from itertools import permutations

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.execution.pinned import usable_cores

GIGA = 10**9


def cores(name: str, count: int | None = None) -> Cluster:
    """The first `count` cores, all unless given. Raises ValueError where there are fewer."""
    usable = len(usable_cores())
    if count is not None and not 1 <= count <= usable:
        raise ValueError(f"cores: {count} of {usable} that can be used")
    share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // usable
    devices = tuple(
        Device(f"cpu:{core}", "cpu", share, 50 * GIGA, 10 * GIGA, launch_ns=5000, dispatch_ns=1000) for core in range(count or usable)
    )
    links = (Link(src.name, dst.name, 5 * GIGA, overhead_ns=5000, channel=src.name) for src, dst in permutations(devices, 2))
    return Cluster(name, devices, tuple(links))
