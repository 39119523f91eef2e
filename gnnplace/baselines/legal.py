"""Devices as planners see them: which ones compute, and where a unit goes that may not stand where it is wanted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.problem import Problem
from gnnplace.transforms.units import Units, allowed, work_ns


def accelerators(problem: Problem) -> Int64[np.ndarray, " accelerators"]:
    """The devices that are no CPU; all devices where there is no such device."""
    others = [index for index, device in enumerate(problem.cluster.devices) if device.kind != "cpu"]
    return np.array(others or range(problem.num_devices), dtype=np.int64)


def processors(problem: Problem) -> Int64[np.ndarray, " processors"]:
    """The CPUs. Raises ValueError where the cluster has none."""
    found = [index for index, device in enumerate(problem.cluster.devices) if device.kind == "cpu"]
    if not found:
        raise ValueError(f"{problem.cluster.name}: no device of kind 'cpu'; its devices are {', '.join(problem.cluster.device_names)}")
    return np.array(found, dtype=np.int64)


def on_accelerators(problem: Problem, legal: Bool[np.ndarray, "units devices"]) -> Bool[np.ndarray, "units devices"]:
    """Where units may stand if CPUs are left out wherever that leaves a device."""
    fast = legal & np.isin(np.arange(problem.num_devices), accelerators(problem))
    return np.where(fast.any(axis=1, keepdims=True), fast, legal)


def legalised(problem: Problem, units: Units, wanted: Int64[np.ndarray, "*samples units"]) -> Int32[np.ndarray, "*samples units"]:
    """The wanted device of each unit; where it is not allowed, the allowed device on which the unit's work is shortest.

    Raises ValueError where a unit may stand nowhere.
    """
    legal = allowed(problem, units)
    shortest = np.where(legal, work_ns(problem, units), np.iinfo(np.int64).max).argmin(axis=1)
    return np.where(legal[np.arange(units.num_units), wanted], wanted, shortest).astype(np.int32)
