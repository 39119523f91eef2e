"""Schedules: the priorities by which devices choose among ready ops (docs/execution-model.md#schedules).

- `fifo`: no priorities; ops run in the order in which they become ready.
- `critical-path`: the length of the longest path from the start of the op to the end of the step, under this placement
  (`ranks`).
- `depth`: the number of ops on the longest path that begins with the op, control edges included:
  `depth[i] = 1 + max(0, max over consumers j of depth[j])`. It does not depend on the placement.
- `memory`: the position of the op in the memory order of the placement, counted from the end (`memory_order`).
- `given`, `in-order`: the priorities of the planner.

All priorities are exact integers and do not depend on the order of ops in the graph's document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import no_type_check

import numpy as np
from jaxtyping import Int64, UInt32

from gnnplace.compiled import kernel
from gnnplace.placement import Placement, Schedule, missing_link
from gnnplace.problems import Problem
from gnnplace.schedules.buffers import buffers
from gnnplace.schedules.memory_order import fill_memory_orders
from gnnplace.schedules.ranks import delays, fill_ranks

RANKED: tuple[Schedule, ...] = ("critical-path", "memory")  # computed from paths under the placement


def priorities(problem: Problem, placement: Placement) -> Int64[np.ndarray, " ops"]:
    """The priority of every op under the schedule of the placement; the highest goes first.

    Raises ValueError if the ranks of the schedule need a link that does not exist.
    """
    if placement.priority is not None:
        return placement.priority
    if placement.schedule in RANKED and (reason := missing_link(problem, placement.device)) is not None:
        raise ValueError(f"{placement.schedule}: {reason}")
    return computed(problem, [placement.schedule], placement.device.reshape(1, -1).astype(np.uint32))[0]


def computed(
    problem: Problem, schedules: Sequence[Schedule], device: UInt32[np.ndarray, "rows ops"]
) -> Int64[np.ndarray, "rows ops"]:
    """The priorities of each row of devices under its schedule.

    They are 0 under `fifo`, `given` and `in-order`, and undefined if a link that ranks need is missing.
    """
    delay_tables, named = delays(problem), np.array(schedules)
    priority = np.zeros(device.shape, dtype=np.int64)
    fill_ranks(delay_tables, device, np.isin(named, RANKED), priority)
    if (by_depth := named == "depth").any():
        priority[by_depth] = depths(delay_tables)
    if (by_memory := named == "memory").any():
        fill_memory_orders(delay_tables, buffers(problem.graph), device, by_memory, priority)
    return priority


@kernel
@no_type_check
def depths(delays):
    """The number of ops on the longest path that begins with each op, itself included."""
    depth = np.ones(len(delays.order), np.int64)
    for position in range(len(delays.order) - 1, -1, -1):
        op = delays.order[position]
        for edge in range(delays.out_ptr[op], delays.out_ptr[op + 1]):
            depth[op] = max(depth[op], 1 + depth[delays.edges[edge].dst])
    return depth
