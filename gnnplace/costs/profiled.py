"""Profiled costs: every op takes its measured time. A missing time is an error unless the caller names its device kind for roofline costs.

As with every cost model, times that the ops of a graph give themselves win (docs/execution-model.md#measured-costs).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import Cluster, Device
from gnnplace.costs import roofline
from gnnplace.costs.measured import NOT_MEASURED, MeasuredCosts
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import MAX_STEP_NS, Problem, allowed_on


def problem(graph: ComputationGraph, cluster: Cluster, costs: MeasuredCosts, roofline_kinds: Collection[str] = ()) -> Problem:
    """The problem of a graph on a cluster under profiled costs; see `time_ns`. Links keep the cluster's constants (see `links.measured`).

    Times are measured on devices that work alone. The slowdown of an op on a contended memory is that of its roofline costs.
    """
    alone_ns, (modelled_ns, contended_ns) = time_ns(graph, cluster, costs, roofline_kinds), roofline.times_ns(graph, cluster)
    if contended_ns is None:
        return Problem(graph, cluster, alone_ns)
    slow_ns = np.minimum(MAX_STEP_NS, np.rint(alone_ns * (contended_ns / modelled_ns)))
    return Problem(graph, cluster, alone_ns, np.maximum(alone_ns, slow_ns.astype(np.int64)))


def time_ns(
    graph: ComputationGraph, cluster: Cluster, costs: MeasuredCosts, roofline_kinds: Collection[str] = ()
) -> Int64[np.ndarray, "ops devices"]:
    """Nanoseconds of every op on every device, at least 1: the times measured for the device's name, or else for its kind.

    Devices of a kind in `roofline_kinds` have roofline costs; that is for kinds that were not measured at all. An op that lists
    its device kinds lasts the longest of its times elsewhere. Raises ValueError where the costs are of another graph, lack the
    time of an op on a device where it may stand, or a kind in `roofline_kinds` was measured.
    """
    if costs.graph_sha256 != graph.sha256:
        raise ValueError(f"the costs are those of {costs.graph_name!r} (sha256 {costs.graph_sha256}), not of {graph.name!r}")
    given = roofline.given_ns(graph, cluster)
    columns = [_device_ns(graph, device, costs, roofline_kinds, given[:, d]) for d, device in enumerate(cluster.devices)]
    return np.maximum(1, np.where(given == NONE, np.stack(columns, axis=1), given))


def _device_ns(
    graph: ComputationGraph, device: Device, costs: MeasuredCosts, roofline_kinds: Collection[str], given: Int64[np.ndarray, " ops"]
) -> Int64[np.ndarray, " ops"]:
    if device.kind in roofline_kinds:
        if costs.covers(device):
            raise ValueError(f"device {device.name!r}: its times were measured, so kind {device.kind!r} needs no roofline")
        return roofline.modelled_ns(graph, device)
    times = costs.device_ns(device)
    lacking = (times == NOT_MEASURED) & (given == NONE)
    longest = np.max(list(costs.time_ns.values()), axis=0)
    absent = np.flatnonzero(lacking & (allowed_on(graph, device.kind) | (longest == NOT_MEASURED)))
    if len(absent):
        raise ValueError(
            f"op {graph.op_names[absent[0]]!r}: no measured time for device kind {device.kind!r} (device {device.name!r}); "
            f"the costs have times for {', '.join(costs.time_ns)}"
        )
    return np.where(lacking, longest, times)
