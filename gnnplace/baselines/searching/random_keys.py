"""Random keys for placement and priorities (Bean, 1994): each key in [0, 1) encodes a change to one block of units.

A key below the `stay` of its gene leaves the block unchanged. So a random chromosome is a few random moves, not a
random placement. The rest of [0, 1) is divided evenly among the devices for a placement key; for a priority key it is a
negative or positive offset to the ranks of the block's ops. Genes go from the largest blocks to the smallest. Later
genes override earlier ones, so a part of a block may go to another device than the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64

from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.schedules.priorities import computed
from gnnplace.units.blocks import grains
from gnnplace.units.units import Units, allowed, expand, units

ACTIVE = 1.5  # the mean number of blocks that a random chromosome moves, and of those whose ranks it changes
REACH = 0.05  # the largest change of a rank, as a share of the largest rank


class UnitPlan(NamedTuple):
    """The device of every unit, and the offset to the ranks of its ops as a share of the largest rank."""

    device: Int32[np.ndarray, " units"]
    offset: Float[np.ndarray, " units"]


class Code(NamedTuple):
    """The genes of a problem: gene g is the block `member[ptr[g]:ptr[g+1]]` of units `ops`."""

    closure: Units
    legal: Bool[np.ndarray, "units devices"]
    ptr: Int64[np.ndarray, " genes_plus_1"]
    member: Int64[np.ndarray, " members"]
    stay: Float[np.ndarray, " genes"]
    grain_ptr: Int64[np.ndarray, " grains_plus_1"]

    @property
    def num_genes(self) -> int:
        return len(self.stay)


def code(problem: Problem) -> Code:
    """The genes of a problem; none if no grain has two blocks.

    Raises ValueError if a unit is allowed on no device.
    """
    closure = units(problem.graph, "ops")
    sorted_grains = sorted(grains(problem.graph), key=lambda grain: grain.num_blocks)
    counts = np.array([grain.num_blocks for grain in sorted_grains], dtype=np.int64)
    sizes = np.concatenate([np.zeros(1, dtype=np.int64), *(np.diff(grain.ptr) for grain in sorted_grains)])
    member = np.concatenate([np.zeros(0, dtype=np.int64), *(grain.member for grain in sorted_grains)])
    stay = 1 - np.minimum(0.5, ACTIVE / (max(1, len(sorted_grains)) * np.maximum(1, counts)))
    return Code(
        closure,
        allowed(problem, closure),
        sizes.cumsum(),
        member,
        np.repeat(stay, counts),
        np.append(0, counts.cumsum()),
    )


def decoded(code: Code, home: UnitPlan, keys: Float[np.ndarray, "2 genes"]) -> UnitPlan:
    """The plan `home` changed by keys: row 0 for placement, row 1 for priorities.

    A unit keeps its device if the new one is not allowed for it.
    """
    device, offset = home.device.copy(), home.offset.copy()
    num_devices = code.legal.shape[1]
    share = np.maximum(0.0, (keys - code.stay) / (1 - code.stay))
    for gene in np.flatnonzero(keys[0] >= code.stay):
        block = code.member[code.ptr[gene] : code.ptr[gene + 1]]
        target = min(num_devices - 1, int(share[0, gene] * num_devices))
        device[block] = np.where(code.legal[block, target], target, device[block])
    for gene in np.flatnonzero(keys[1] >= code.stay):
        offset[code.member[code.ptr[gene] : code.ptr[gene + 1]]] += REACH * (2 * share[1, gene] - 1)
    return UnitPlan(device, offset)


def encoded(code: Code, home: UnitPlan, device: Int32[np.ndarray, " units"]) -> Float[np.ndarray, "2 genes"]:
    """Keys that turn the plan `home` into a placement, by the largest blocks that the placement has on one device.

    Ranks don't change.
    """
    keys, now, num_devices = np.zeros((2, code.num_genes)), home.device.copy(), code.legal.shape[1]
    for low, high in zip(code.grain_ptr[:-1], code.grain_ptr[1:], strict=True):
        member, start = code.member[code.ptr[low] : code.ptr[high]], code.ptr[low:high] - code.ptr[low]
        least, most = np.minimum.reduceat(device[member], start), np.maximum.reduceat(device[member], start)
        differs = np.maximum.reduceat((now[member] != device[member]).astype(np.int64), start) > 0
        moved = (least == most) & differs
        stay = code.stay[low:high]
        keys[0, low:high] = np.where(moved, stay + (1 - stay) * (least + 0.5) / num_devices, 0.0)
        member_moved = np.repeat(moved, np.diff(np.append(start, len(member))))
        now[member[member_moved]] = device[member[member_moved]]
    return keys


def placements(problem: Problem, code: Code, plans: list[UnitPlan], schedule: Schedule) -> list[Placement]:
    """The placements of plans.

    Under the schedule `given`, priorities are the ranks of critical-path plus the offsets of the plans.
    """
    rows = [expand(code.closure, plan.device) for plan in plans]
    if schedule != "given":
        return [Placement(row, schedule) for row in rows]
    ranks = computed(problem, ["critical-path"] * len(rows), np.stack(rows).astype(np.uint32))
    added = [
        np.rint(plan.offset[code.closure.unit] * float(rank.max())) for plan, rank in zip(plans, ranks, strict=True)
    ]
    return [
        Placement(row, "given", rank + more.astype(np.int64))
        for row, rank, more in zip(rows, ranks, added, strict=True)
    ]
