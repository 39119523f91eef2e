"""The memory order of a placement, for the schedule `memory`: a sequence of all ops that keeps few bytes alive.

The sequence is built greedily. An op is a candidate once all its inputs are in the sequence. The next op is the
candidate that adds the fewest bytes; ties go to the highest rank of the schedule critical-path, then to the lowest
index. By the rules for buffers of docs/execution-model.md#buffers, an op adds

- the buffers of its outputs on its device, except aliases,
- a buffer on another device for each root that it sends there, unless that device produces the root,
- minus each buffer on its device of which it is the last user: every other op there that consumes or produces the root
  is already in the sequence, and no result holds the buffer.

Its workspace does not count, because it is freed when the op ends. The priority of an op is the number of ops from it
to the end of the sequence, itself included. Sethi and Ullman (1970) order trees for the fewest registers in this way;
Eyraud-Dubois, Marchal, Sinnen and Vivien (2015) schedule parallel processors along such a sequential order.
"""

from __future__ import annotations

import heapq
from typing import no_type_check

import numpy as np

from gnnplace.compiled import kernel, part
from gnnplace.schedules.ranks import NOTHING


@kernel
@no_type_check
def fill_memory_orders(delays, buffers, device, wanted, rank):
    """Replaces the ranks of each wanted row by the priorities of the memory order."""
    num_devices = np.uint32(delays.time_ns.shape[1])
    for row in np.flatnonzero(wanted):
        _fill_order(delays, buffers, device[row], num_devices, rank[row])


@part
@no_type_check
def _fill_order(delays, buffers, device, num_devices, rank):
    """Replaces each op's rank by the number of ops from it to the end of the sequence."""
    edges, out_ptr, touch_ptr, touch_root = delays.edges, delays.out_ptr, buffers.touch_ptr, buffers.touch_root
    order, left = rank.copy(), len(rank)
    adds, size, users, which = _buffers(delays, buffers, device, num_devices)
    missing = np.zeros(left, np.uint32)
    for edge in range(len(edges)):
        missing[edges[edge].dst] += 1
    ready = [(adds[op], -order[op], op) for op in range(left) if missing[op] == 0]
    heapq.heapify(ready)
    while left > 0:
        added, _, op = heapq.heappop(ready)
        if missing[op] != 0 or added != adds[op]:
            continue  # already in the sequence, or pushed again with fewer bytes
        missing[op], rank[op] = NOTHING, left
        left -= 1
        for touch in range(touch_ptr[op], touch_ptr[op + 1]):
            slot = touch_root[touch] * num_devices + device[op]
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


@part
@no_type_check
def _buffers(delays, buffers, device, num_devices):
    """The bytes that each op adds at the start, and for each slot its bytes, its number of users, and the exclusive or
    of their indices.

    The slot of root r on device d is `r * devices + d`. Once a slot has one user left, the exclusive or is the index of
    that user.
    """
    root_op, touch_ptr, touch_root = buffers.root_op, buffers.touch_ptr, buffers.touch_root
    num_slots = len(root_op) * num_devices
    adds, size = np.zeros(len(device), np.int64), np.zeros(num_slots, np.int64)
    users, which = np.zeros(num_slots, np.uint32), np.zeros(num_slots, np.uint32)
    for root in range(len(root_op)):
        size[root * num_devices + device[root_op[root]]] = buffers.root_bytes[root]
        adds[root_op[root]] += buffers.root_bytes[root]
    for result in range(len(buffers.result_op)):
        # so that no op is ever the last user
        users[buffers.result_root[result] * num_devices + device[buffers.result_op[result]]] += 2
    for op in range(len(device)):
        for touch in range(touch_ptr[op], touch_ptr[op + 1]):
            slot = touch_root[touch] * num_devices + device[op]
            users[slot] += 1
            which[slot] ^= np.uint32(op)
    sent = _sent_slots(delays, buffers, device, num_devices)
    for edge in range(len(sent)):
        if sent[edge] >= 0:
            size[sent[edge]] = max(size[sent[edge]], buffers.output_bytes[delays.edges[edge].output])
    _add_sent(delays.out_ptr, sent, size, adds)
    for slot in range(num_slots):
        if users[slot] == 1:
            adds[which[slot]] -= size[slot]
    return adds, size, users, which


@part
@no_type_check
def _sent_slots(delays, buffers, device, num_devices):
    """The slot that each edge's output takes on the consumer's device, if it is sent there.

    -1 for a control edge, an edge within a device, and a device that produces the root.
    """
    edges, out_ptr, output_root = delays.edges, delays.out_ptr, buffers.output_root
    sent = np.full(len(edges), -1, np.int64)
    for op in range(len(device)):
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            there, output = device[edges[edge].dst], edges[edge].output
            if there != device[op] and output != NOTHING and device[buffers.root_op[output_root[output]]] != there:
                sent[edge] = output_root[output] * num_devices + there
    return sent


@part
@no_type_check
def _add_sent(out_ptr, sent, size, adds):
    """Adds to each op the bytes of the slots to which it sends, each slot once."""
    sender = np.full(len(size), NOTHING, np.uint32)  # the last op so far that sends to the slot
    for op in range(len(adds)):
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            slot = sent[edge]
            if slot >= 0 and sender[slot] != op:
                sender[slot] = op
                adds[op] += size[slot]
