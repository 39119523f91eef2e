"""The memory order of a placement: all ops in a sequence that holds little at a time, for the schedule `memory`.

The next op is, of those whose sources are all in the sequence, the one that adds the fewest bytes; of equals the one of the highest rank
(that of the schedule critical-path), then the lowest. An op adds, as buffers are held in EXECUTION_MODEL.md,

- the buffers of its outputs that are no aliases, on its device,
- for each root of which it sends an output to another device, the buffer there, unless the root is made there,
- less each buffer on its device that it is the last to use: every other op there that consumes or produces an output with that root is in
  the sequence, and no result holds it.

Its workspace is gone when it ends: not counted. The priority of an op is the number of ops from it to the end of the sequence, itself
included. That is list scheduling by memory, greedily: Sethi and Ullman (1970) order trees for the fewest registers, and Eyraud-Dubois,
Marchal, Sinnen and Vivien (2015) have parallel processors follow such a sequential order.
"""

from __future__ import annotations

import heapq
from typing import no_type_check

import numba
import numpy as np

from gnnplace.transforms.schedule import NOTHING


@numba.njit(cache=True, nogil=True)
@no_type_check
def fill_memory_orders(delays, buffers, device, wanted, rank):
    """Puts priorities in the place of ranks, in each row that is wanted."""
    edges, out_ptr, root_op, touch_ptr = delays.edges, delays.out_ptr, buffers.root_op, buffers.touch_ptr
    num_ops, num_devices = device.shape[1], np.uint32(delays.time_ns.shape[1])
    num_slots = len(root_op) * num_devices  # the buffer of root r on device d is slot `r * devices + d`
    for row in np.flatnonzero(wanted):
        here, order = device[row], rank[row].copy()
        size, users = np.zeros(num_slots, np.int64), np.zeros(num_slots, np.uint32)
        which = np.zeros(num_slots, np.uint32)  # all users by exclusive or: the one that is left, where it is one
        sender = np.full(num_slots, NOTHING, np.uint32)  # the op that was last seen to send to it
        adds = np.zeros(num_ops, np.int64)
        for root in range(len(root_op)):
            op = root_op[root]
            size[root * num_devices + here[op]] = buffers.root_bytes[root]
            adds[op] += buffers.root_bytes[root]
        for result in range(len(buffers.result_op)):
            users[buffers.result_root[result] * num_devices + here[buffers.result_op[result]]] += 2  # never left to one
        for op in range(num_ops):
            for touch in range(touch_ptr[op], touch_ptr[op + 1]):
                slot = buffers.touch_root[touch] * num_devices + here[op]
                users[slot] += 1
                which[slot] ^= np.uint32(op)
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                there, output = here[edges[edge].dst], edges[edge].output
                if there != here[op] and output != NOTHING and here[root_op[buffers.output_root[output]]] != there:
                    slot = buffers.output_root[output] * num_devices + there
                    size[slot] = max(size[slot], buffers.output_bytes[output])
        for op in range(num_ops):
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                there, output = here[edges[edge].dst], edges[edge].output
                if there != here[op] and output != NOTHING and here[root_op[buffers.output_root[output]]] != there:
                    slot = buffers.output_root[output] * num_devices + there
                    if sender[slot] != op:
                        sender[slot] = op
                        adds[op] += size[slot]
        for slot in range(num_slots):
            if users[slot] == 1:
                adds[which[slot]] -= size[slot]

        missing, left = np.zeros(num_ops, np.uint32), num_ops
        for edge in range(len(edges)):
            missing[edges[edge].dst] += 1
        ready = [(adds[op], -order[op], op) for op in range(num_ops) if missing[op] == 0]
        heapq.heapify(ready)
        while left > 0:
            added, _, op = heapq.heappop(ready)
            if missing[op] != 0 or added != adds[op]:
                continue  # in the sequence, or entered again with less
            missing[op], rank[row, op] = NOTHING, left
            left -= 1
            for touch in range(touch_ptr[op], touch_ptr[op + 1]):
                slot = buffers.touch_root[touch] * num_devices + here[op]
                users[slot] -= 1
                which[slot] ^= np.uint32(op)
                last = which[slot]
                if users[slot] == 1 and size[slot] > 0:
                    adds[last] -= size[slot]
                    if missing[last] == 0:
                        heapq.heappush(ready, (adds[last], -order[last], np.int64(last)))
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                dst = edges[edge].dst
                missing[dst] -= 1
                if missing[dst] == 0:
                    heapq.heappush(ready, (adds[dst], -order[dst], np.int64(dst)))
