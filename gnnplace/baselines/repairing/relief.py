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

TRIFLE = 1e-4  # of the time for which devices may be busy: what a move has to be able to save


class Scale(NamedTuple):
    """What devices hold and may hold, their overflow and load and that of channels; and working memory.

    That is: the ops that move, the roots seen, what the device that they leave holds more, and what each target would; of one root, the
    first and last slice in which each device needs it and its size there, and of the ops that move; for each target, how much longer the
    ops take, whether it has the links, and how much longer each channel is busy.
    """

    held: Float[np.ndarray, "devices slices"]
    room: Float[np.ndarray, " devices"]
    over: Float[np.ndarray, " devices"]
    load: Int64[np.ndarray, " devices"]
    carried: Int64[np.ndarray, " channels"]
    limit_ns: int
    free_ns: float
    moved: Bool[np.ndarray, " ops"]
    seen: Int64[np.ndarray, " roots"]
    mark: Int64[np.ndarray, " one"]
    here: Float[np.ndarray, " slices"]
    there: Float[np.ndarray, "devices slices"]
    first: Int64[np.ndarray, " devices_plus_1"]
    last: Int64[np.ndarray, " devices_plus_1"]
    size: Int64[np.ndarray, " devices_plus_1"]
    longer_ns: Int64[np.ndarray, " devices"]
    linked: Bool[np.ndarray, " devices"]
    carries: Int64[np.ndarray, "devices channels"]


@numba.njit(cache=True, nogil=True)
@no_type_check
def held_bytes(still, device, slices):
    """What every device holds in every slice."""
    num_devices = still.allowed.shape[1]
    held = np.zeros((num_devices, slices + 1))
    first_of, last_of = np.full(num_devices, slices, np.int64), np.full(num_devices, -1, np.int64)
    size_of = np.zeros(num_devices, np.int64)
    for op in range(len(device)):
        held[device[op], 0] += still.persistent[op]
        held[device[op], still.first[op]] += still.workspace[op]
        held[device[op], still.last[op] + 1] -= still.workspace[op]
    for root in range(len(still.touches.root_op)):
        producer = still.touches.root_op[root]
        home, away = device[producer], False
        first_of[:] = slices
        last_of[:] = -1
        size_of[:] = 0
        for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
            op = still.touches.op[touch]
            here = device[op]
            first_of[here] = min(first_of[here], still.first[op])
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
                begin, size = _arrives(still, root, here, first_of[here]), size_of[here]
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
    return _moved(still, block_ptr, block_op, device, scale, heap, False)


@numba.njit(cache=True, nogil=True)
@no_type_check
def hasten(still, block_ptr, block_op, device, room, balances):
    """Moves blocks in `device` to where they take less time and there is room, until there are none; returns the number of moves.

    No device or channel should be busy for longer than one is now or, if it `balances`, than devices are on average.
    """
    now = _weighed(still, device, room, 0, 1.0)
    limit_ns = now.load.sum() // len(room) if balances else max(now.load.max(), now.carried.max())
    scale = _weighed(still, device, room, limit_ns, 1.0)
    heap = [(0.0, np.int64(-1), np.int64(-1))]
    heap.clear()
    most_ns, on = _most_saved_ns(still, device), np.zeros(still.allowed.shape[1])
    for block in range(len(block_ptr) - 1):
        ops = block_op[block_ptr[block] : block_ptr[block + 1]]
        on[:] = -1
        for op in ops:
            on[device[op]] = max(0, on[device[op]], scale.load[device[op]] - limit_ns) + most_ns[op]
        for here in np.flatnonzero(on > TRIFLE * limit_ns):
            worth, _ = _best(still, ops, device, here, scale, True)
            if worth > 0:
                heap.append((-worth, np.int64(block), np.int64(here)))
    return _moved(still, block_ptr, block_op, device, scale, heap, True)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _most_saved_ns(still, device):
    """What an op's move can save at most: time that it takes less elsewhere, and transfers of what it touches."""
    most = np.zeros(len(device))
    for op in range(len(device)):
        most[op] = max(0, still.time_ns[op, device[op]] - still.time_ns[op].min())
    carried, sent = np.zeros(_channels(still), np.int64), np.zeros(still.allowed.shape[1], np.bool_)
    for root in range(len(still.touches.root_op)):
        carried[:] = 0
        _carry_all(still, root, device, carried, sent)
        total = carried.sum()
        if total > 0:
            for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
                most[still.touches.op[touch]] += total
    return most


@numba.njit(cache=True, nogil=True)
@no_type_check
def _moved(still, block_ptr, block_op, device, scale, heap, hastens):
    """Makes the moves of a heap, the best first, as long as one is worth something."""
    heapq.heapify(heap)
    moves = 0
    while len(heap) > 0:
        _, block, here = heapq.heappop(heap)
        ops = block_op[block_ptr[block] : block_ptr[block + 1]]
        worth, there = _best(still, ops, device, here, scale, hastens) if hastens or scale.over[here] > 0 else (0.0, here)
        if worth <= 0:
            continue
        if len(heap) > 0 and worth < -heap[0][0]:  # it was worth more before other moves
            heapq.heappush(heap, (-worth, block, here))
            continue
        for op in ops:
            if device[op] == here:
                device[op] = there
                scale.load[here] -= still.time_ns[op, here]
                scale.load[there] += still.time_ns[op, there]
        scale.carried[:] += scale.carries[there]
        scale.held[here] += scale.here
        scale.held[there] += scale.there[there]
        for each in (here, there):
            scale.over[each] = _overflow(scale.held[each], scale.room[each])
        moves += 1
    return moves


@numba.njit(cache=True, nogil=True)
@no_type_check
def _weighed(still, device, room, limit_ns, free_ns):
    num_devices, slices = still.allowed.shape[1], int(still.last.max()) + 1
    held, load = held_bytes(still, device, slices), np.zeros(num_devices, np.int64)
    for op in range(len(device)):
        load[device[op]] += still.time_ns[op, device[op]]
    carried, sent = np.zeros(_channels(still), np.int64), np.zeros(num_devices, np.bool_)
    for root in range(len(still.touches.root_op)):
        _carry_all(still, root, device, carried, sent)
    carries = np.zeros((num_devices, len(carried)), np.int64)
    over = np.array([_overflow(held[d], room[d]) for d in range(num_devices)])
    seen, mark = np.full(len(still.touches.root_op), -1, np.int64), np.zeros(1, np.int64)
    first, last, size = np.zeros(num_devices + 1, np.int64), np.zeros(num_devices + 1, np.int64), np.zeros(num_devices + 1, np.int64)
    longer_ns, linked = np.zeros(num_devices, np.int64), np.ones(num_devices, np.bool_)
    here, there = np.zeros(slices), np.zeros((num_devices, slices))
    moved = np.zeros(len(device), np.bool_)
    return Scale(
        held, room, over, load, carried, limit_ns, free_ns, moved, seen, mark, here, there, first, last, size, longer_ns, linked, carries
    )


@numba.njit(cache=True, nogil=True)
@no_type_check
def _candidates(still, block_ptr, block_op, device, scale, least):
    """Every block of some weight on an overfull device whose move is worth something: (-worth, block, here)."""
    heap = [(0.0, np.int64(-1), np.int64(-1))]
    heap.clear()  # numba infers the type of its entries from the first
    for here in np.flatnonzero(scale.over > 0):
        weight = _held_by_op(still, device, here, scale.held[here].argmax())
        enough = least * (scale.held[here] - scale.room[here]).max()
        for block in range(len(block_ptr) - 1):
            ops = block_op[block_ptr[block] : block_ptr[block + 1]]
            total = 0.0
            for op in ops:
                total += weight[op]
            if total >= enough:
                worth, _ = _best(still, ops, device, here, scale, False)
                if worth > 0:
                    heap.append((-worth, np.int64(block), np.int64(here)))
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
        elif not still.known[root, here] or still.arrives[root, here] <= at:
            for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
                op = still.touches.op[touch]
                if device[op] == here and still.last[op] >= at and (still.known[root, here] or still.first[op] <= at):
                    weight[op] += still.touches.bytes[touch]
    return weight


@numba.njit(cache=True, nogil=True)
@no_type_check
def _best(still, ops, device, here, scale, hastens):
    """The most relief for its cost that the move of a block off a device brings, and the device to which; 0 where there is none.

    If it `hastens`: the most time that it saves for the bytes that the device to which it goes then holds more, if that has the room.

    Leaves in `scale` what the device, and each target, hold more after the move.
    """
    num_devices, slices = scale.held.shape
    possible = np.ones(num_devices, np.bool_)
    possible[here] = False
    added_ns = _lift(still, ops, device, here, scale, possible)
    for root in _touched(still, ops, scale):
        _shift(still, root, device, here, scale)
    for op in ops:
        scale.moved[op] = False
    best, best_there = 0.0, here
    for at in range(1, slices):
        scale.here[at] += scale.here[at - 1]
    left = scale.over[here] - _overflow(scale.held[here] + scale.here, scale.room[here])
    for there in range(num_devices):
        if not possible[there] or not scale.linked[there]:
            continue
        sent_ns, too_long = scale.carries[there].sum(), _too_long(scale.load[there], added_ns[there], scale.limit_ns)
        too_long += _too_long(scale.load[here], -added_ns[here], scale.limit_ns)
        for channel in range(len(scale.carried)):
            too_long += _too_long(scale.carried[channel], scale.carries[there, channel], scale.limit_ns)
        saved_ns = -(scale.longer_ns[there] + sent_ns + too_long)
        if hastens and (saved_ns <= best or left < 0):
            continue
        more = scale.there[there]
        for at in range(1, slices):
            more[at] += more[at - 1]
        over = _overflow(scale.held[there] + more, scale.room[there])
        if hastens:
            worth = saved_ns / (1.0 + max(0.0, more.mean())) if over <= scale.over[there] else 0.0
        else:
            relief = left + scale.over[there] - over
            worth = relief / (max(0, scale.longer_ns[there]) + max(0, sent_ns) + max(0, too_long) + scale.free_ns)
        if worth > best:
            best, best_there = worth, there
    return best, best_there


@numba.njit(cache=True, nogil=True)
@no_type_check
def _too_long(load, change, limit_ns):
    """By how much longer than it may a device or a channel is busy, more than before."""
    return max(0, load + change - limit_ns) - max(0, load - limit_ns)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _lift(still, ops, device, here, scale, possible):
    """Marks the ops that move, and adds what they hold by themselves; returns the time that they take on each device."""
    added_ns, last = np.zeros(len(possible), np.int64), scale.held.shape[1] - 1
    scale.here[:] = 0
    scale.there[:] = 0
    scale.linked[:] = True
    scale.carries[:] = 0
    for op in ops:
        if device[op] != here:
            continue
        scale.moved[op] = True
        _hold(scale.here, 0, last, -still.persistent[op])
        _hold(scale.here, still.first[op], still.last[op], -still.workspace[op])
        for there in range(len(possible)):
            possible[there] &= still.allowed[op, there]
            added_ns[there] += still.time_ns[op, there]
            _hold(scale.there[there], 0, last, still.persistent[op])
            _hold(scale.there[there], still.first[op], still.last[op], still.workspace[op])
    for there in range(len(possible)):
        scale.longer_ns[there] = added_ns[there] - added_ns[here]
    return added_ns


@numba.njit(cache=True, nogil=True)
@no_type_check
def _touched(still, ops, scale):
    """The roots that ops that move consume or produce, each once."""
    found = [np.int64(-1)]
    found.clear()
    scale.mark[0] += 1
    for op in ops:
        if scale.moved[op]:
            for touch in range(still.touches.op_ptr[op], still.touches.op_ptr[op + 1]):
                root = np.int64(still.touches.of_op[touch])
                if scale.seen[root] != scale.mark[0]:
                    scale.seen[root] = scale.mark[0]
                    found.append(root)
    return found


@numba.njit(cache=True, nogil=True)
@no_type_check
def _shift(still, root, device, here, scale):
    """Adds what a root's buffers change by on the device that ops leave and on each target, and the time that it occupies channels more."""
    touches, first, last, size, num_devices = still.touches, scale.first, scale.last, scale.size, len(scale.room)
    producer, final, going = touches.root_op[root], scale.held.shape[1] - 1, len(scale.room)
    first[:] = final + 1
    last[:] = -1
    size[:] = 0
    for touch in range(touches.ptr[root], touches.ptr[root + 1]):
        op = touches.op[touch]
        on = going if scale.moved[op] else device[op]
        first[on] = min(first[on], still.first[op])
        last[on] = max(last[on], final if touches.result[touch] else still.last[op])
        size[on] = max(size[on], touches.bytes[touch])
    old_home, leaves = device[producer], scale.moved[producer]
    stay = 0  # devices that need it whatever moves
    for on in range(num_devices):
        stay += last[on] >= 0
    elsewhere = stay - (last[old_home] >= 0)
    _buffer(still, root, here, old_home, min(first[here], first[going]), max(last[here], last[going]), max(size[here], size[going]),
            elsewhere > 0 or old_home != here, scale.here, -1)  # fmt: skip
    if last[here] >= 0 and not leaves:
        _buffer(still, root, here, old_home, first[here], last[here], size[here], True, scale.here, 1)
    elif last[here] >= 0:
        _buffer(still, root, here, -1, first[here], last[here], size[here], True, scale.here, 1)
    for there in range(num_devices):
        if there == here:
            continue
        home = there if leaves else old_home
        away = elsewhere > 0 or old_home != there  # of the old step: the ops that move need it `here`
        if last[there] >= 0:
            _buffer(still, root, there, old_home, first[there], last[there], size[there], away or last[going] >= 0, scale.there[there], -1)
        away = stay > (last[there] >= 0) if leaves else elsewhere > 0 or home != there
        begin, end = min(first[there], first[going]), max(last[there], last[going])
        _buffer(still, root, there, home, begin, end, max(size[there], size[going]), away, scale.there[there], 1)
        if leaves and stay > 0:
            for on in range(num_devices):
                if last[on] >= 0:
                    _carry(still, root, old_home, on, scale.carries[there], -1)
                    scale.linked[there] &= _carry(still, root, there, on, scale.carries[there], 1)
        elif not leaves:
            if last[there] < 0:
                scale.linked[there] &= _carry(still, root, old_home, there, scale.carries[there], 1)
            if last[here] < 0:
                _carry(still, root, old_home, here, scale.carries[there], -1)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _buffer(still, root, on, home, first, last, size, away, change, sign):
    """Adds a root's buffer on a device that needs it from `first` to `last`, or takes it away. `away`: another device needs it, too."""
    if on == home:
        until = max(last, still.leaves[root]) if away else last
        _hold(change, still.first[still.touches.root_op[root]], until, sign * still.touches.root_bytes[root])
    else:
        begin = _arrives(still, root, on, first)
        _hold(change, begin, max(begin, last), sign * size)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _arrives(still, root, on, first):
    """When a root arrives on a device that needs it from `first`: as it does now, or else just in time."""
    arrives = still.arrives[root, on]
    return arrives if still.known[root, on] else max(arrives, first)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _carry_all(still, root, device, carried, sent):
    """Adds the times of all transfers of a root."""
    home = device[still.touches.root_op[root]]
    sent[:] = False
    for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
        here = device[still.touches.op[touch]]
        if not sent[here]:
            sent[here] = True
            _carry(still, root, home, here, carried, 1)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _channels(still):
    return int(still.channel.max()) + 1 if len(still.channel) > 0 else 1


@numba.njit(cache=True, nogil=True)
@no_type_check
def _carry(still, root, home, on, carried, sign):
    """Adds the time of a root's transfer to a device to that of its channel, or takes it away; False where there is no link."""
    if home == on:
        return True
    link = still.link[home, on]
    if link < 0:
        return False
    carried[still.channel[link]] += sign * still.touches.sent_ns[root, still.rate[link]]
    return True


@numba.njit(cache=True, nogil=True)
@no_type_check
def _hold(change, first, last, size):
    """Adds bytes that are held from one slice to another, as differences between neighbouring slices."""
    change[first] += size
    if last + 1 < len(change):
        change[last + 1] -= size
