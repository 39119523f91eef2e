"""The devices on which planners may place units: CPUs, accelerators, allowed devices, and a fallback."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.problems import Problem
from gnnplace.units.units import Units, allowed, work_ns


def processors(problem: Problem) -> Int64[np.ndarray, " processors"]:
    """The indices of the CPUs. Raises ValueError if the cluster has no CPU."""
    cpus = [index for index, device in enumerate(problem.cluster.devices) if device.kind == "cpu"]
    if not cpus:
        raise ValueError(
            f"{problem.cluster.name}: no device of kind 'cpu'; its devices are "
            f"{', '.join(problem.cluster.device_names)}"
        )
    return np.array(cpus, dtype=np.int64)


def on_accelerators(problem: Problem, legal: Bool[np.ndarray, "units devices"]) -> Bool[np.ndarray, "units devices"]:
    """The mask without CPUs; a unit that is allowed only on CPUs keeps them."""
    fast = legal & np.isin(np.arange(problem.num_devices), problem.cluster.accelerators)
    return np.where(fast.any(axis=1, keepdims=True), fast, legal)


def device_sets(problem: Problem, units: Units) -> list[Bool[np.ndarray, "units devices"]]:
    """The masks of allowed devices that list schedulers try: all devices, and no CPUs if that makes a difference.

    Raises ValueError if a unit is allowed on no device.
    """
    legal = allowed(problem, units)
    fast = on_accelerators(problem, legal)
    return [legal] if np.array_equal(fast, legal) else [legal, fast]


def legalised(
    problem: Problem, units: Units, wanted: Int64[np.ndarray, "*samples units"]
) -> Int32[np.ndarray, "*samples units"]:
    """The wanted device of each unit, or the fastest allowed device if the wanted one is not allowed.

    Raises ValueError if a unit is allowed on no device.
    """
    legal = allowed(problem, units)
    shortest = np.where(legal, work_ns(problem, units), np.iinfo(np.int64).max).argmin(axis=1)
    return np.where(legal[np.arange(units.num_units), wanted], wanted, shortest).astype(np.int32)
