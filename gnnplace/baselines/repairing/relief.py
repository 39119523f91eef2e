"""Moves of blocks under frozen times: off overfull devices, or to devices where they take less time.

The move of highest worth (relief or saved time per cost) is made first. Every move changes the worth of the others. So
a move is weighed again before it is made, and it waits if another move is worth more by then.
"""

from __future__ import annotations

import heapq
from typing import no_type_check

import numpy as np

from gnnplace.baselines.repairing.moves import best_move
from gnnplace.baselines.repairing.scale import add, busy_ns, carry_all, num_channels, overflow, weighed
from gnnplace.compiled import kernel, part

TRIFLE = 1e-4  # a move must be able to save more than this share of the time for which devices may be busy


@kernel
@no_type_check
def relieve(still, block_ptr, block_op, device, room, limit_ns, free_ns, least):
    """Moves blocks in `device` until nothing overflows or no move relieves; returns the moves in order.

    `room` is the bytes that each device may hold, `limit_ns` the time for which it may be busy, and `free_ns` the cost
    of a move that costs no time. Blocks that hold less than the share `least` of the excess of a device stay.
    """
    scale = weighed(still, device, room, limit_ns, free_ns)
    heap = _candidates(still, block_ptr, block_op, device, scale, least)
    return _moved(still, block_ptr, block_op, device, scale, heap, False)


@kernel
@no_type_check
def hasten(still, block_ptr, block_op, device, room, share):
    """Moves blocks in `device` to devices with room where they take less time; returns the moves in order.

    No device or channel should be busy for longer than the busiest is now or, with a `share` above 0, for longer than
    this share of the mean over devices.
    """
    load, carried = busy_ns(still, device)
    limit_ns = int(share * load.mean()) if share > 0 else max(load.max(), carried.max())
    scale = weighed(still, device, room, limit_ns, 1.0)
    heap = [(0.0, np.int64(-1), np.int64(-1))]
    heap.clear()
    most_ns = _most_saved_ns(still, device)
    time_ns, saved_ns = np.zeros(still.allowed.shape[1]), np.zeros(still.allowed.shape[1])
    for block in range(len(block_ptr) - 1):
        ops = block_op[block_ptr[block] : block_ptr[block + 1]]
        time_ns[:] = 0
        saved_ns[:] = 0
        for op in ops:
            time_ns[device[op]] += still.time_ns[op, device[op]]
            saved_ns[device[op]] += most_ns[op]
        saved_ns += np.minimum(time_ns, np.maximum(0, scale.load - limit_ns))
        for here in np.flatnonzero(saved_ns > TRIFLE * limit_ns):
            worth, _ = best_move(still, ops, device, here, scale, True)
            if worth > 0:
                heap.append((-worth, np.int64(block), np.int64(here)))
    return _moved(still, block_ptr, block_op, device, scale, heap, True)


@part
@no_type_check
def _moved(still, block_ptr, block_op, device, scale, heap, hastens):
    """Makes the moves of a heap, the best first, while their worth is above 0.

    Returns the block, the device that it left and its new device for each move.
    """
    heapq.heapify(heap)
    moves = [(np.int64(-1), np.int64(-1), np.int64(-1))]
    moves.clear()
    while len(heap) > 0:
        _, block, here = heapq.heappop(heap)
        ops = block_op[block_ptr[block] : block_ptr[block + 1]]
        worth, there = (
            best_move(still, ops, device, here, scale, hastens) if hastens or scale.over[here] > 0 else (0.0, here)
        )
        if worth <= 0:
            continue
        if len(heap) > 0 and worth < -heap[0][0]:  # earlier moves have lessened its worth
            heapq.heappush(heap, (-worth, block, here))
            continue
        for op in ops:
            if device[op] == here:
                device[op] = there
                scale.load[here] -= still.time_ns[op, here]
                scale.load[there] += still.time_ns[op, there]
        add(scale.carried, scale.carries[there])
        add(scale.held[here], scale.here)
        add(scale.held[there], scale.there[there])
        for each in (here, there):
            scale.over[each] = overflow(scale.held[each], scale.room[each])
        moves.append((block, here, there))
    return moves


@part
@no_type_check
def _candidates(still, block_ptr, block_op, device, scale, least):
    """The moves of large enough blocks off overfull devices with a worth above 0: (-worth, block, here)."""
    heap = [(0.0, np.int64(-1), np.int64(-1))]
    heap.clear()  # Numba infers the type of an empty list from its first entry
    for here in np.flatnonzero(scale.over > 0):
        weight = _held_by_op(still, device, here, scale.held[here].argmax())
        enough = least * (scale.held[here] - scale.room[here]).max()
        for block in range(len(block_ptr) - 1):
            ops = block_op[block_ptr[block] : block_ptr[block + 1]]
            total = 0.0
            for op in ops:
                total += weight[op]
            if total >= enough:
                worth, _ = best_move(still, ops, device, here, scale, False)
                if worth > 0:
                    heap.append((-worth, np.int64(block), np.int64(here)))
    return heap


@part
@no_type_check
def _held_by_op(still, device, here, at):
    """The bytes that each op of a device holds there in one slice: persistent bytes, workspace, buffers of outputs."""
    weight, slices = np.zeros(len(device)), int(still.last.max()) + 1
    for op in range(len(device)):
        if device[op] == here:
            weight[op] = still.persistent[op]
            if still.first[op] <= at <= still.last[op]:
                weight[op] += still.workspace[op]
    for root in range(len(still.touches.root_op)):
        producer = still.touches.root_op[root]
        if device[producer] == here and still.first[producer] <= at:
            end = still.leaves[root]
            for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
                op = still.touches.op[touch]
                if device[op] == here:
                    end = max(end, slices - 1 if still.touches.result[touch] else still.last[op])
            if end >= at:
                weight[producer] += still.touches.root_bytes[root]
        elif not still.fixed[root, here] or still.arrives[root, here] <= at:
            for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
                op = still.touches.op[touch]
                if device[op] == here and still.last[op] >= at and (still.fixed[root, here] or still.first[op] <= at):
                    weight[op] += still.touches.bytes[touch]
    return weight


@part
@no_type_check
def _most_saved_ns(still, device):
    """The most that an op's move can save: its time minus its least time, and the transfers of its roots."""
    most = np.zeros(len(device))
    for op in range(len(device)):
        most[op] = max(0, still.time_ns[op, device[op]] - still.time_ns[op].min())
    carried, sent = np.zeros(num_channels(still), np.int64), np.zeros(still.allowed.shape[1], np.bool_)
    for root in range(len(still.touches.root_op)):
        carried[:] = 0
        carry_all(still, root, device, carried, sent)
        total = carried.sum()
        if total > 0:
            for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
                most[still.touches.op[touch]] += total
    return most
