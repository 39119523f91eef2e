"""Roofline costs: an op's launch time plus the larger of its arithmetic time and its memory time.

Times that the graph states for an op take precedence. docs/execution-model.md#roofline-costs
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import Cluster, Device
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import Problem, duration_ns


def problem(graph: ComputationGraph, cluster: Cluster) -> Problem:
    """The problem of a graph on a cluster under roofline costs."""
    return Problem(graph, cluster, *times_ns(graph, cluster))


def times_ns(
    graph: ComputationGraph, cluster: Cluster
) -> tuple[Int64[np.ndarray, "ops devices"], Int64[np.ndarray, "ops devices"] | None]:
    """The time of every op on every device, alone and on a contended memory (None if no device is slower there)."""
    alone_ns = time_ns(graph, cluster)
    rates = [device.contended_memory_bytes_per_s for device in cluster.devices]
    if not any(rates):
        return alone_ns, None
    slow = [
        replace(device, memory_bytes_per_s=rate or device.memory_bytes_per_s)
        for device, rate in zip(cluster.devices, rates, strict=True)
    ]
    contended = replace(cluster, devices=tuple(replace(device, contended_memory_bytes_per_s=None) for device in slow))
    return alone_ns, time_ns(graph, contended)


def time_ns(graph: ComputationGraph, cluster: Cluster) -> Int64[np.ndarray, "ops devices"]:
    """The time of every op on every device in ns, at least 1, launch time included."""
    modelled = np.stack([modelled_ns(graph, device) for device in cluster.devices], axis=1)
    given = given_ns(graph, cluster)
    return np.maximum(1, np.where(given == NONE, modelled, given))


def given_ns(graph: ComputationGraph, cluster: Cluster) -> Int64[np.ndarray, "ops devices"]:
    """The times that the graph states for its ops, which take precedence over every cost model; -1 for none."""
    given = np.stack([_given_ns(graph, device) for device in cluster.devices], axis=1)
    longest = graph.given_time_ns.max(axis=1, initial=NONE)[:, None]  # on devices where the op is not allowed
    return np.where(given == NONE, longest, given)


def _given_ns(graph: ComputationGraph, device: Device) -> Int64[np.ndarray, " ops"]:
    times = np.full(graph.num_ops, NONE, dtype=np.int64)
    for key in (device.kind, device.name):  # the name takes precedence over the kind
        if key in graph.given_keys:
            column = graph.given_time_ns[:, graph.given_keys.index(key)]
            times = np.where(column == NONE, times, column)
    return times


def modelled_ns(graph: ComputationGraph, device: Device) -> Int64[np.ndarray, " ops"]:
    """The roofline time of every op on a device, whatever times the graph states.

    An op without a kernel takes `dispatch_ns` if it is dispatched, else 1 ns.
    """
    traffic = duration_ns(graph.effective_bytes_accessed, device.memory_bytes_per_s)
    with_kernel = device.launch_ns + np.maximum(arithmetic_ns(graph, device), traffic)
    return np.maximum(1, np.where(graph.kernel, with_kernel, np.where(graph.dispatched, device.dispatch_ns, 0)))


def arithmetic_ns(graph: ComputationGraph, device: Device) -> Int64[np.ndarray, " ops"]:
    """The time of every op's arithmetic at the rate of its dtype."""
    arithmetic = np.zeros(graph.num_ops, dtype=np.int64)
    dtype = first_dtype(graph)
    for index in range(NONE, len(graph.output_dtype.values)):
        rows = dtype == index
        name = None if index == NONE else graph.output_dtype.values[index]
        arithmetic[rows] = duration_ns(graph.flops[rows], device.rate(name))
    return arithmetic


def first_dtype(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The dtype of each op's first output, an index into `output_dtype.values`; -1 for none."""
    dtype = np.full(graph.num_ops, NONE, dtype=np.int64)
    has_output = np.diff(graph.output_ptr) > 0
    dtype[has_output] = graph.output_dtype.index[graph.output_ptr[:-1][has_output]]
    return dtype
