"""Devices as planners see them: which ones compute, and where a unit goes that may not stand where it is wanted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64

from gnnplace.problems import Problem
from gnnplace.units.units import Units, allowed, work_ns


def processors(problem: Problem) -> Int64[np.ndarray, " processors"]:
    """The CPUs. Raises ValueError where the cluster has none."""
    found = [index for index, device in enumerate(problem.cluster.devices) if device.kind == "cpu"]
    if not found:
        raise ValueError(f"{problem.cluster.name}: no device of kind 'cpu'; its devices are {', '.join(problem.cluster.device_names)}")
    return np.array(found, dtype=np.int64)


def on_accelerators(problem: Problem, legal: Bool[np.ndarray, "units devices"]) -> Bool[np.ndarray, "units devices"]:
    """Where units may stand if CPUs are left out wherever that leaves a device."""
    fast = legal & np.isin(np.arange(problem.num_devices), problem.cluster.accelerators)
    return np.where(fast.any(axis=1, keepdims=True), fast, legal)


def device_sets(problem: Problem, units: Units) -> list[Bool[np.ndarray, "units devices"]]:
    """Where units may stand; and, if there are CPUs, the same without CPUs wherever that leaves a device.

    Raises ValueError where a unit may stand nowhere.
    """
    legal = allowed(problem, units)
    fast = on_accelerators(problem, legal)
    return [legal] if np.array_equal(fast, legal) else [legal, fast]


def legalised(problem: Problem, units: Units, wanted: Int64[np.ndarray, "*samples units"]) -> Int32[np.ndarray, "*samples units"]:
    """The wanted device of each unit; where it is not allowed, the allowed device on which the unit's work is shortest.

    Raises ValueError where a unit may stand nowhere.
    """
    legal = allowed(problem, units)
    shortest = np.where(legal, work_ns(problem, units), np.iinfo(np.int64).max).argmin(axis=1)
    return np.where(legal[np.arange(units.num_units), wanted], wanted, shortest).astype(np.int32)


def mean_transfer_ns(
    problem: Problem, devices: Int64[np.ndarray, " devices"], carried: Int64[np.ndarray, " edges"]
) -> Float[np.ndarray, " edges"]:
    """What so many bytes take on a mean link between these devices; the bytes themselves where they have none."""
    names = [problem.cluster.device_names[device] for device in devices]
    links = [link for link in problem.cluster.links if link.src in names and link.dst in names]
    if not links:
        return carried.astype(np.float64)
    hops = [1 if link.receive_channel is None else 2 for link in links]
    per_byte = np.mean([count * 1e9 / link.bandwidth_bytes_per_s for count, link in zip(hops, links, strict=True)])
    return carried * per_byte + np.mean([count * link.overhead_ns + link.latency_ns for count, link in zip(hops, links, strict=True)])
