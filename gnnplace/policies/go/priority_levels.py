"""GO's placements: priorities in a few levels, fusion by levels, and devices from a list scheduler.

`proposed` makes placements of GO's decisions. Within a level of priority a schedule rule orders the ops.

`by_priority` fuses as "Learning to Fuse" (Abdolrashidi et al., 2019, section 3), which GO (Zhou et al., NeurIPS 2020)
takes over: ops are visited by falling priority. An op of the forward pass tries to fuse with one of its inputs, an op
of the backward pass with one of its outputs. A fused op may be fused again, up to a number of ops. The papers leave
four points open. Of several inputs an op takes the largest that may be fused with it (this saves the most traffic). Of
equal priorities the first op in topological order goes first, as in the papers' baseline. Updates, and ops of an
unknown phase, try their inputs. The number of ops is 64 unless given.

`list_placement` places units if GO does not place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from jaxtyping import Int, Int32, Int64, Integer
from torch import Tensor

from gnnplace.fusion.growing import MOST_OPS, grown, tries
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.placing.observations import COLUMN, PartialPlacements
from gnnplace.policies.placing.unit_tables import unit_tables
from gnnplace.policies.states import unit_placements
from gnnplace.problems import Problem
from gnnplace.schedules.paths import decision_order
from gnnplace.schedules.priorities import computed
from gnnplace.units.units import Units, allowed, expand

BACKWARD = ("backward_data", "backward_weight")


def proposed(
    problem: Problem,
    units: Units,
    device: Int[Tensor, "samples units"],
    levels: Mapping[str, Int64[np.ndarray, "samples ops"]],
    rule: Schedule,
) -> tuple[Placement, ...]:
    """The placements of GO's decisions.

    They have priorities if there are levels of "scheduling", and a fusion if there are levels of "fusion".
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
    """Placements whose ops run by falling level; within a level in the order of the schedule `rule`.

    So one level for all ops is that schedule.
    """
    ranks = computed(problem, [rule] * len(device), device.astype(np.uint32))
    dense = np.stack([np.unique(row, return_inverse=True)[1].reshape(-1) for row in ranks])
    priority = level * problem.num_ops + dense
    return tuple(Placement(where, "given", when) for where, when in zip(device, priority, strict=True))


def levels_of(priority: Int64[np.ndarray, " ops"], levels: int) -> Int64[np.ndarray, " ops"]:
    """The level of every op; each level holds equally many ops.

    Ops of equal priority share the lowest of their levels.
    """
    return np.searchsorted(np.sort(priority), priority) * levels // len(priority)


def by_priority(
    problem: Problem,
    priority: Integer[np.ndarray, " ops"],
    device: Int32[np.ndarray, " ops"] | None = None,
    most_ops: int = MOST_OPS,
) -> Int32[np.ndarray, " ops"]:
    """The fusion that priorities of ops give, the highest first. Ops on different devices are not fused.

    Without devices, the fusion leaves some device for each group. Raises ValueError for a wrong number of priorities.
    """
    graph = problem.graph
    if priority.shape != (graph.num_ops,):
        raise ValueError(f"priority: {len(priority)} entries for {graph.num_ops} ops")
    order = graph.order[np.argsort(~priority[graph.order], kind="stable")]
    every = np.ones(graph.num_edges, dtype=bool)
    return grown(problem, order, tries(graph, every, graph.phase.among(BACKWARD)), device, most_ops)


def list_placement(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """The device of every unit by list scheduling, in the order in which work can start.

    Devices without room for all that a unit keeps come last.
    """
    order, legal = decision_order(problem, units), allowed(problem, units)
    partial = PartialPlacements(unit_tables(problem, units, order), 1)
    for may in legal[order]:
        (observed,) = partial.observe()
        full = np.where(observed[:, COLUMN.memory] > 1, 1.0, 0.0)
        partial.place(np.lexsort((observed[:, COLUMN.finish], full, ~may))[:1])
    device = np.empty(units.num_units, np.int64)
    device[order] = partial.device[0]
    return device
