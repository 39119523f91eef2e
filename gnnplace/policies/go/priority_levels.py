"""GO's placements: priorities of a few levels, whose ops a rule orders;
fusion by levels; a first placement by list scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Int, Int32, Int64
from torch import Tensor

from gnnplace.fusion.by_priority import by_priority
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.placing.observations import OBSERVATIONS, PartialPlacements
from gnnplace.policies.placing.unit_tables import unit_tables
from gnnplace.policies.states import unit_placements
from gnnplace.problems import Problem
from gnnplace.schedules.priorities import computed
from gnnplace.schedules.unit_order import decision_order
from gnnplace.units.units import Units, allowed, expand


def proposed(
    problem: Problem,
    units: Units,
    device: Int[Tensor, "samples units"],
    levels: Mapping[str, Int64[np.ndarray, "samples ops"]],
    rule: Schedule,
) -> tuple[Placement, ...]:
    """Placements of units, with priorities where there are levels of
    "scheduling" and what those of "fusion" fuse where there are any.
    """
    if "scheduling" in levels:
        of_ops = expand(units, device.cpu().numpy().astype(np.int32))
        placements = ordered_placements(problem, of_ops, levels["scheduling"], rule)
    else:
        placements = unit_placements(units, device, rule)
    if "fusion" not in levels:
        return placements
    fused = zip(placements, levels["fusion"], strict=True)
    return tuple(replace(placement, fusion=by_priority(problem, level, placement.device)) for placement, level in fused)


def ordered_placements(
    problem: Problem, device: Int32[np.ndarray, "samples ops"], level: Int64[np.ndarray, "samples ops"], rule: Schedule
) -> tuple[Placement, ...]:
    """Ops of the highest level go first; within a level, as under the schedule `rule`.

    So one level for all ops is that schedule.
    """
    ranks = computed(problem, [rule] * len(device), device.astype(np.uint32))
    dense = np.stack([np.unique(row, return_inverse=True)[1].reshape(-1) for row in ranks])
    priority = level * problem.num_ops + dense
    return tuple(Placement(where, "given", when) for where, when in zip(device, priority, strict=True))


def levels_of(priority: Int64[np.ndarray, " ops"], levels: int) -> Int64[np.ndarray, " ops"]:
    """The level of every op where each holds equally many, as far as equal
    priorities allow: they share the lowest of their levels.
    """
    return np.searchsorted(np.sort(priority), priority) * levels // len(priority)


FINISH, MEMORY = OBSERVATIONS.index("finish"), OBSERVATIONS.index("memory")


def list_placement(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """The device of every unit, in the order in which work can start;
    devices without room for all that a unit holds come last.
    """
    order, legal = decision_order(problem, units), allowed(problem, units)
    partial = PartialPlacements(unit_tables(problem, units, order), 1)
    for may in legal[order]:
        (observed,) = partial.observe()
        full = np.where(observed[:, MEMORY] > 1, 1.0, 0.0)
        partial.place(np.lexsort((observed[:, FINISH], full, ~may))[:1])
    device = np.empty(units.num_units, np.int64)
    device[order] = partial.device[0]
    return device
