"""Topological levels of a directed graph in CSR form, and whether it has a cycle."""

from __future__ import annotations

from typing import no_type_check

import numba
import numpy as np


@numba.njit(cache=True)
@no_type_check
def levels(num_ops, out_ptr, edge_dst):
    """Kahn's algorithm: the level of every op (-1 where a cycle keeps it from being reached), and how many were reached."""
    waiting = np.zeros(num_ops, np.int64)
    for dst in edge_dst:
        waiting[dst] += 1
    level = np.full(num_ops, -1, np.int32)
    queue = np.empty(num_ops, np.int32)
    tail = 0
    for op in range(num_ops):
        if waiting[op] == 0:
            queue[tail] = op
            level[op] = 0
            tail += 1
    reach = np.zeros(num_ops, np.int32)
    head = 0
    while head < tail:
        op = queue[head]
        head += 1
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            dst = edge_dst[edge]
            reach[dst] = max(reach[dst], level[op] + 1)
            waiting[dst] -= 1
            if waiting[dst] == 0:
                level[dst] = reach[dst]
                queue[tail] = dst
                tail += 1
    return level, tail
