"""Relief: moves of blocks off overfull devices under frozen times, most relief for the time that it costs first.

*Overflow* of a device is what it holds beyond its room in its worst slice, plus the mean over slices, so that a move counts that relieves
one of several equal peaks. The *relief* of a move is by how much it lessens the overflow of both of its devices. Its *cost* is the
time that the ops take longer there, that more transfers occupy channels, and by which the target is busier than any device is now.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, no_type_check

import numba
import numpy as np
from jaxtyping import Bool, Float, Int64

UNLINKED = 2**60  # ns


class Scale(NamedTuple):
    """What devices hold and may hold, and working memory: the ops that move, the roots seen, and what both devices of a move hold more."""

    held: Float[np.ndarray, "devices slices"]
    room: Float[np.ndarray, " devices"]
    over: Float[np.ndarray, " devices"]
    load: Int64[np.ndarray, " devices"]
    limit_ns: int
    free_ns: float
    moved: Bool[np.ndarray, " ops"]
    seen: Int64[np.ndarray, " roots"]
    mark: Int64[np.ndarray, " one"]
    here: Float[np.ndarray, " slices"]
    there: Float[np.ndarray, " slices"]


@numba.njit(cache=True, nogil=True)
@no_type_check
def held_bytes(still, device, slices):
    """What every device holds in every slice."""
    num_devices = still.allowed.shape[1]
    held = np.zeros((num_devices, slices + 1))
    last_of = np.full(num_devices, -1, np.int64)
    size_of = np.zeros(num_devices, np.int64)
    for op in range(len(device)):
        held[device[op], 0] += still.persistent[op]
        held[device[op], still.first[op]] += still.workspace[op]
        held[device[op], still.last[op] + 1] -= still.workspace[op]
    for root in range(len(still.touches.root_op)):
        producer = still.touches.root_op[root]
        home, away = device[producer], False
        last_of[:] = -1
        size_of[:] = 0
        for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
            op = still.touches.op[touch]
            here = device[op]
            last_of[here] = max(last_of[here], slices - 1 if still.touches.result[touch] else still.last[op])
            size_of[here] = max(size_of[here], still.touches.bytes[touch])
            away |= here != home
        for here in range(num_devices):
            if last_of[here] == -1:
                continue
            if here == home:
                begin, end, size = still.first[producer], last_of[here], still.touches.root_bytes[root]
                end = max(end, still.leaves[root]) if away else end
            else:
                begin, size = still.arrives[root, here], size_of[here]
                end = max(begin, last_of[here])
            held[here, begin] += size
            held[here, end + 1] -= size
    for here in range(num_devices):
        for at in range(1, slices + 1):
            held[here, at] += held[here, at - 1]
    return held[:, :slices]


@numba.njit(cache=True, nogil=True)
@no_type_check
def relieve(still, block_ptr, block_op, device, room, limit_ns, free_ns, least):
    """Moves blocks in `device` until nothing overflows or nothing relieves; returns the number of moves.

    `room` is what each device may hold. A device may be busy for `limit_ns`; `free_ns` is the cost of a move that costs no time. Blocks
    that hold less than the share `least` of what a device has too much stay.
    """
    scale = _weighed(still, device, room, limit_ns, free_ns)
    heap = _candidates(still, block_ptr, block_op, device, scale, least)
    heapq.heapify(heap)
    moves = 0
    while len(heap) > 0:
        _, block, here, there = heapq.heappop(heap)
        ops = block_op[block_ptr[block] : block_ptr[block + 1]]
        worth = _worth(still, ops, device, here, there, scale) if scale.over[here] > 0 else 0.0
        if worth <= 0:
            continue
        if len(heap) > 0 and worth < -heap[0][0]:  # it was worth more before other moves
            heapq.heappush(heap, (-worth, block, here, there))
            continue
        for op in ops:
            if device[op] == here:
                device[op] = there
                scale.load[here] -= still.time_ns[op, here]
                scale.load[there] += still.time_ns[op, there]
        scale.held[here] += scale.here
        scale.held[there] += scale.there
        for each in (here, there):
            scale.over[each] = _overflow(scale.held[each], room[each])
        moves += 1
    return moves


@numba.njit(cache=True, nogil=True)
@no_type_check
def _weighed(still, device, room, limit_ns, free_ns):
    num_devices, slices = still.allowed.shape[1], int(still.last.max()) + 1
    held, load = held_bytes(still, device, slices), np.zeros(num_devices, np.int64)
    for op in range(len(device)):
        load[device[op]] += still.time_ns[op, device[op]]
    over = np.array([_overflow(held[d], room[d]) for d in range(num_devices)])
    seen = np.full(len(still.touches.root_op), -1, np.int64)
    return Scale(
        held,
        room,
        over,
        load,
        limit_ns,
        free_ns,
        np.zeros(len(device), np.bool_),
        seen,
        np.zeros(1, np.int64),
        np.zeros(slices),
        np.zeros(slices),
    )


@numba.njit(cache=True, nogil=True)
@no_type_check
def _candidates(still, block_ptr, block_op, device, scale, least):
    """Every move of a block of some weight off an overfull device that is worth something: (-worth, block, here, there)."""
    heap = [(0.0, np.int64(-1), np.int64(-1), np.int64(-1))]
    heap.clear()  # numba infers the type of its entries from the first
    for here in np.flatnonzero(scale.over > 0):
        weight = _held_by_op(still, device, here, scale.held[here].argmax())
        enough = least * (scale.held[here] - scale.room[here]).max()
        for block in range(len(block_ptr) - 1):
            ops = block_op[block_ptr[block] : block_ptr[block + 1]]
            total = 0.0
            for op in ops:
                total += weight[op]
            for there in range(len(scale.room) if total >= enough else 0):
                worth = _worth(still, ops, device, here, there, scale) if there != here else 0.0
                if worth > 0:
                    heap.append((-worth, np.int64(block), np.int64(here), np.int64(there)))
    return heap


@numba.njit(cache=True, nogil=True)
@no_type_check
def _overflow(held, room):
    worst, total = 0.0, 0.0
    for at in range(len(held)):
        over = held[at] - room
        if over > 0:
            worst = max(worst, over)
            total += over
    return worst + total / len(held)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _held_by_op(still, device, here, at):
    """What each op of a device has it hold in one slice: what is persistent, and the buffers of its outputs."""
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
        elif still.arrives[root, here] <= at:
            for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
                op = still.touches.op[touch]
                if device[op] == here and still.last[op] >= at:
                    weight[op] += still.touches.bytes[touch]
    return weight


@numba.njit(cache=True, nogil=True)
@no_type_check
def _worth(still, ops, device, here, there, scale):
    """The relief of a move for its cost, 0 where it relieves nothing or is not possible. Leaves in `scale` what both devices hold more."""
    more, less, moved, slices = scale.there, scale.here, scale.moved, scale.held.shape[1]
    more[:] = 0
    less[:] = 0
    longer, added, sent, possible = 0, 0, 0, True
    for op in ops:
        if device[op] == here:
            possible &= still.allowed[op, there]
            moved[op] = True
            longer += still.time_ns[op, there] - still.time_ns[op, here]
            added += still.time_ns[op, there]
            for change, sign in ((less, -1), (more, 1)):
                _hold(change, 0, slices - 1, sign * still.persistent[op])
                _hold(change, still.first[op], still.last[op], sign * still.workspace[op])
    scale.mark[0] += 1
    for op in ops:
        if moved[op] and possible:
            for touch in range(still.touches.op_ptr[op], still.touches.op_ptr[op + 1]):
                root = still.touches.of_op[touch]
                if scale.seen[root] != scale.mark[0]:
                    scale.seen[root] = scale.mark[0]
                    changed = _shift(still, root, device, here, there, scale)
                    possible &= changed < UNLINKED
                    sent += changed
    for op in ops:
        moved[op] = False
    if not possible:
        return 0.0
    for at in range(1, slices):
        less[at] += less[at - 1]
        more[at] += more[at - 1]
    relief = scale.over[here] - _overflow(scale.held[here] + less, scale.room[here])
    relief += scale.over[there] - _overflow(scale.held[there] + more, scale.room[there])
    cost = max(0, longer) + max(0, sent) + max(0, scale.load[there] + added - scale.limit_ns)
    return relief / (cost + scale.free_ns)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _hold(change, first, last, size):
    """Adds bytes that are held from one slice to another, as differences between neighbouring slices."""
    change[first] += size
    if last + 1 < len(change):
        change[last + 1] -= size


@numba.njit(cache=True, nogil=True)
@no_type_check
def _shift(still, root, device, here, there, scale):
    """Adds what a root's buffers on both devices change by; returns for how much longer it occupies channels, `UNLINKED` without a link."""
    touches, producer, slices = still.touches, still.touches.root_op[root], scale.held.shape[1]
    old_home = np.int64(device[producer])
    new_home = there if scale.moved[producer] else old_home
    last, size = np.full(4, -1), np.zeros(4)  # on `here` and `there` now, on both after the move
    old_away, new_away = False, False
    for touch in range(touches.ptr[root], touches.ptr[root + 1]):
        op = touches.op[touch]
        old = np.int64(device[op])
        new = there if scale.moved[op] else old
        old_away |= old != old_home
        new_away |= new != new_home
        end = slices - 1 if touches.result[touch] else still.last[op]
        for place, on in ((0, old), (2, new)):
            if on in (here, there):
                at = place + (on == there)
                last[at], size[at] = max(last[at], end), max(size[at], touches.bytes[touch])
    sent = 0
    for place, sign, home, away in ((0, -1, old_home, old_away), (2, 1, new_home, new_away)):
        for side in range(2):
            on, at = there if side else here, place + side
            if last[at] < 0:
                continue
            change = scale.there if side else scale.here
            if on == home:
                until = max(last[at], still.leaves[root]) if away else last[at]
                _hold(change, still.first[producer], until, sign * touches.root_bytes[root])
            else:
                begin = still.arrives[root, on]
                _hold(change, begin, max(begin, last[at]), sign * size[at])
                link = still.link[home, on]
                sent += sign * (touches.sent_ns[root, still.rate[link]] if link >= 0 else 2 * UNLINKED)
    return sent
