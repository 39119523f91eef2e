"""The costs of a workload on this machine: every op on every kind of device, every link between two kinds, as `MeasuredCosts`.

Ops are timed where they run, in whole steps on one device, so that what they find in its caches is what a step leaves there; of each op
the median over steps counts. What nothing executes (a variable, an input) takes no time.
"""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from itertools import permutations

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import Cluster, Device
from gnnplace.execution.host import Host
from gnnplace.execution.machine import gpus
from gnnplace.execution.timing import STEADY, warm_up
from gnnplace.execution.workload import Plan
from gnnplace.measured_costs import CostProvenance, LinkSample, MeasuredCosts
from gnnplace.version import VERSION

STEPS = 30


def profile(host: Host, cluster: Cluster, steps: int = STEPS) -> MeasuredCosts:
    """Times the host's workload on the first device of each kind, and the first link between each pair of kinds.

    Raises MeasurementError where the step can't run on one of them alone.
    """
    graph = host.graph
    first = {device.kind: device for device in reversed(cluster.devices)}
    times = {kind: op_medians(host, device, steps) for kind, device in sorted(first.items())}
    links: dict[tuple[str, str], tuple[LinkSample, ...]] = {}
    for pair in permutations(cluster.devices, 2):
        kinds = (pair[0].kind, pair[1].kind)
        if kinds not in links:
            links[kinds] = host.links(pair)
    provenance = CostProvenance(f"gnnplace {VERSION}", hardware("gpu" in times), datetime.now(UTC).date().isoformat(), steps)
    return MeasuredCosts(graph.name, graph.sha256, graph.op_names, times, links, provenance)


def op_medians(host: Host, device: Device, steps: int) -> Int64[np.ndarray, " ops"]:
    """The median nanoseconds of each op in steps on one device, 0 for what nothing executes."""
    num_ops = host.graph.num_ops
    step = host.start(Plan((device,), np.zeros(num_ops, dtype=np.int32), host.graph.order))
    try:
        warm_up(step.run, STEADY)
        found = step.op_times(steps)
    finally:
        step.close()
    return np.median([times.end_ns - times.start_ns for times in found], axis=0).astype(np.int64)


def hardware(with_gpus: bool = False) -> str:
    """This machine's processor in words, and its GPUs where asked for."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())
    return ", ".join([model, *([gpu.name for gpu in gpus()] if with_gpus else []), platform.system()])
