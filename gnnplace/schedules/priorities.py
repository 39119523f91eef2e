"""Schedules: the priorities by which devices choose among ready ops (EXECUTION_MODEL.md, Schedules).

- `fifo`: none.
- `critical-path`: the length of the path that remains behind an op in this placement.
- `depth`: `depth[i] = 1 + max(0, max over consumers j of depth[j])`, control edges too: the number of ops on the longest path that begins
  with the op, wherever they stand and whatever they take.
- `memory`: the op's place in the placement's memory order, from the end (`memory_order`).
- `given`: the planner's own.

All are exact integers, whatever order the graph's document has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import no_type_check

import numba
import numpy as np
from jaxtyping import Int64, UInt32

from gnnplace.placement import Placement, Schedule, missing_link
from gnnplace.problems import Problem
from gnnplace.schedules.buffers import buffers
from gnnplace.schedules.memory_order import fill_memory_orders
from gnnplace.schedules.ranks import delays, fill_ranks

RANKED: tuple[Schedule, ...] = ("critical-path", "memory")  # by paths of this placement


def priorities(problem: Problem, placement: Placement) -> Int64[np.ndarray, " ops"]:
    """The priority of every op under the placement's schedule, higher first.

    Raises ValueError where the schedule's ranks need a link that does not exist.
    """
    if placement.priority is not None:
        return placement.priority
    if placement.schedule in RANKED and (reason := missing_link(problem, placement.device)) is not None:
        raise ValueError(f"{placement.schedule}: {reason}")
    return computed(problem, [placement.schedule], placement.device.reshape(1, -1).astype(np.uint32))[0]


def computed(problem: Problem, schedules: Sequence[Schedule], device: UInt32[np.ndarray, "rows ops"]) -> Int64[np.ndarray, "rows ops"]:
    """The priorities of rows of devices, each under its schedule: 0 where that has none of its own, or lacks a link that its ranks need."""
    known, named = delays(problem), np.array(schedules)
    priority = np.zeros(device.shape, dtype=np.int64)
    fill_ranks(known, device, np.isin(named, RANKED), priority)
    if (by_depth := named == "depth").any():
        priority[by_depth] = depths(known)
    if (by_memory := named == "memory").any():
        fill_memory_orders(known, buffers(problem.graph), device, by_memory, priority)
    return priority


@numba.njit(cache=True, nogil=True)
@no_type_check
def depths(delays):
    """The number of ops on the longest path from each op, itself included."""
    depth = np.ones(len(delays.order), np.int64)
    for position in range(len(delays.order) - 1, -1, -1):
        op = delays.order[position]
        for edge in range(delays.out_ptr[op], delays.out_ptr[op + 1]):
            depth[op] = max(depth[op], 1 + depth[delays.edges[edge].dst])
    return depth
