"""The priorities of a policy, which knows a few levels alone: a rule orders the ops of one level."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.schedules.priorities import computed


def ordered_placements(
    problem: Problem, device: Int32[np.ndarray, "samples ops"], level: Int64[np.ndarray, "samples ops"], rule: Schedule
) -> tuple[Placement, ...]:
    """Ops of the highest level go first; within a level, as under the schedule `rule`. So one level for all ops is that schedule."""
    ranks = computed(problem, [rule] * len(device), device.astype(np.uint32))
    dense = np.stack([np.unique(row, return_inverse=True)[1].reshape(-1) for row in ranks])
    priority = level * problem.num_ops + dense
    return tuple(Placement(where, "given", when) for where, when in zip(device, priority, strict=True))


def levels_of(priority: Int64[np.ndarray, " ops"], levels: int) -> Int64[np.ndarray, " ops"]:
    """The level of every op where each holds equally many, as far as equal priorities allow: they share the lowest of their levels."""
    return np.searchsorted(np.sort(priority), priority) * levels // len(priority)
