"""Helpers of several policies: constants that are computed once for each problem, and placements of units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor, nn

from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.units.units import Units, allowed, expand

Constants = TypeVar("Constants")


class ProblemConstants(Generic[Constants]):
    """The constants that a policy computes once for each problem, by `compute`.

    They are kept while the problem lives, since updates repeat their problems.

    Constants are tensors in (nested) tuples, among other data. They must not refer to the problem, which would then
    live for ever.
    """

    def __init__(self, compute: Callable[[Problem], Constants]) -> None:
        self._compute = compute
        self._kept: WeakKeyDictionary[Problem, Constants] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, problem: Problem, policy: nn.Module) -> Constants:
        """A problem's constants, on the device of the policy's parameters."""
        constants = self._kept[problem] if problem in self._kept else self._compute(problem)
        self._kept[problem] = to_device(constants, next(policy.parameters()).device)
        return self._kept[problem]

    def keep(self, problem: Problem, constants: Constants) -> None:
        """Replaces a problem's constants, once more is known of it."""
        self._kept[problem] = constants


def to_device(value: Any, device: torch.device) -> Any:
    """The value with every tensor on `device`; the same object where all are there already."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: to_device(part, device) for key, part in value.items()}
    if not isinstance(value, tuple):
        return value
    parts = [to_device(part, device) for part in value]
    if all(moved is part for moved, part in zip(parts, value, strict=True)):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def named_devices(problems: Sequence[Problem], policy: str) -> int:
    """The number of devices of the clusters.

    Raises ValueError if they differ: a policy that names devices is for one number of them.
    """
    counts = sorted({problem.num_devices for problem in problems})
    if len(counts) > 1:
        numbers = " and ".join(map(str, counts))
        raise ValueError(f"problems: clusters of {numbers} devices, but a {policy} policy places on one number of them")
    return counts[0]


def require_devices(problem: Problem, devices: int) -> None:
    """Raises ValueError if the cluster has another number of devices than a policy's weights are for."""
    if problem.num_devices != devices:
        raise ValueError(f"{problem.cluster.name}: {problem.num_devices} devices, but this policy places on {devices}")


def fastest_device(problem: Problem) -> int:
    """The device with the least time for all ops, among those whose memory holds all persistent bytes.

    If no device's memory does, the fastest of all devices.
    """
    holds = problem.graph.persistent_bytes.sum() <= problem.cluster.memory_bytes
    work_ns = problem.time_ns.sum(axis=0)
    return int(np.where(holds | ~holds.any(), work_ns, np.iinfo(np.int64).max).argmin())


def unit_placements(units: Units, device: Int[Tensor, "samples units"], schedule: Schedule) -> tuple[Placement, ...]:
    """Placements that put every op on the device of its unit."""
    devices = expand(units, device.cpu().numpy().astype(np.int32))
    return tuple(Placement(row, schedule) for row in devices)


def devices_of_units(problem: Problem, units: Units, placement: Placement) -> Int64[np.ndarray, " units"]:
    """The device with most of each unit's work, among the devices that are allowed for all of the unit."""
    work = np.zeros((units.num_units, problem.num_devices))
    np.add.at(work, (units.unit, placement.device), problem.time_ns.min(axis=1))
    return np.where(allowed(problem, units), work, -1.0).argmax(axis=1)
