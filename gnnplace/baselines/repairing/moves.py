"""What the move of a block changes under frozen times, and where it should go.

The *relief* of a move is by how much it lessens the overflow of both of its devices. Its *cost* is the time that the
ops take longer there, that channels are busy more, and by which a device or channel is busy for longer than it should
be. A move that hastens saves such time, and its cost is what the device to which it goes holds more.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from gnnplace.baselines.repairing.scale import arrives, carry, overflow
from gnnplace.compiled import kernel, part


@kernel
@no_type_check
def best_move(still, ops, device, here, scale, hastens):
    """The most relief for its cost that the move of a block off a device brings, and the device to which; 0 where there
    is none.

    If it `hastens`: the most time that it saves for the bytes that the device to which it goes then holds more, if that
    has the room.

    Leaves in `scale` what the device, and each target, hold more after the move.
    """
    num_devices, slices = scale.held.shape
    ops = ops[device[ops] == here]
    possible = np.ones(num_devices, np.bool_)
    possible[here] = False
    added_ns, roots = _lift(still, ops, scale, possible), _touched(still, ops, scale)
    for root in roots:
        _reroute(still, root, device, here, scale)
    for there in range(num_devices):
        possible[there] &= scale.linked[there]
        if possible[there]:
            scale.saved_ns[there] = _saved_ns(scale, added_ns, here, there)
            possible[there] = not hastens or scale.saved_ns[there] > 0
    targets = np.flatnonzero(possible)
    if len(targets) > 0:
        _hold_elsewhere(still, ops, scale, targets)
        for root in roots:
            _shift(still, root, device, here, scale, targets)
    for op in ops:
        scale.moved[op] = False
    best, best_there = 0.0, here
    if len(targets) == 0:
        return best, best_there
    for at in range(1, slices):
        scale.here[at] += scale.here[at - 1]
    left = scale.over[here] - overflow(scale.held[here] + scale.here, scale.room[here])
    for there in targets:
        if hastens and (scale.saved_ns[there] <= best or left < 0):
            continue
        more = scale.there[there]
        for at in range(1, slices):
            more[at] += more[at - 1]
        over = overflow(scale.held[there] + more, scale.room[there])
        if hastens:
            worth = scale.saved_ns[there] / (1.0 + max(0.0, more.mean())) if over <= scale.over[there] else 0.0
        else:
            worth = (left + scale.over[there] - over) / (max(0, -scale.saved_ns[there]) + scale.free_ns)
        if worth > best:
            best, best_there = worth, there
    return best, best_there


@part
@no_type_check
def _saved_ns(scale, added_ns, here, there):
    """The time that ops take less there, that channels are busy less, and by which less of both is too long."""
    saved = added_ns[here] - added_ns[there] - scale.carries[there].sum()
    saved -= _too_long(scale.load[there], added_ns[there], scale.limit_ns) + _too_long(
        scale.load[here], -added_ns[here], scale.limit_ns
    )
    for channel in range(len(scale.carried)):
        saved -= _too_long(scale.carried[channel], scale.carries[there, channel], scale.limit_ns)
    return saved


@part
@no_type_check
def _too_long(load, change, limit_ns):
    """By how much longer than it may a device or a channel is busy, more than before."""
    return max(0, load + change - limit_ns) - max(0, load - limit_ns)


@part
@no_type_check
def _lift(still, ops, scale, possible):
    """Marks the ops that move, and the devices to which they may; returns the time that they take on each device."""
    added_ns = np.zeros(len(possible), np.int64)
    scale.linked[:] = True
    scale.carries[:] = 0
    for op in ops:
        scale.moved[op] = True
        for there in range(len(possible)):
            possible[there] &= still.allowed[op, there]
            added_ns[there] += still.time_ns[op, there]
    return added_ns


@part
@no_type_check
def _touched(still, ops, scale):
    """The roots that ops that move consume or produce, each once."""
    roots = [np.int64(-1)]
    roots.clear()
    scale.mark[0] += 1
    for op in ops:
        for touch in range(still.touches.op_ptr[op], still.touches.op_ptr[op + 1]):
            root = np.int64(still.touches.of_op[touch])
            if scale.seen[root] != scale.mark[0]:
                scale.seen[root] = scale.mark[0]
                roots.append(root)
    return roots


@part
@no_type_check
def _reroute(still, root, device, here, scale):
    """Adds the time that a root occupies channels more for each target, and marks the targets that lack a link."""
    touches, needs, num_devices = still.touches, scale.last, len(scale.room)
    home, leaves, stay = device[touches.root_op[root]], scale.moved[touches.root_op[root]], 0
    needs[:] = 0
    for touch in range(touches.ptr[root], touches.ptr[root + 1]):
        op = touches.op[touch]
        if not scale.moved[op] and needs[device[op]] == 0:
            needs[device[op]] = 1
            stay += 1
    if leaves and stay == 0:
        return
    for there in range(num_devices):
        if there == here:
            continue
        if leaves:
            for on in range(num_devices):
                if needs[on]:
                    carry(still, root, home, on, scale.carries[there], -1)
                    scale.linked[there] &= carry(still, root, there, on, scale.carries[there], 1)
        else:
            if not needs[there]:
                scale.linked[there] &= carry(still, root, home, there, scale.carries[there], 1)
            if not needs[here]:
                carry(still, root, home, here, scale.carries[there], -1)


@part
@no_type_check
def _hold_elsewhere(still, ops, scale, targets):
    """Adds what the ops that move hold by themselves on the device that they leave and on each target."""
    last = scale.held.shape[1] - 1
    scale.here[:] = 0
    scale.there[:] = 0
    for op in ops:
        hold(scale.here, 0, last, -still.persistent[op])
        hold(scale.here, still.first[op], still.last[op], -still.workspace[op])
        for there in targets:
            hold(scale.there[there], 0, last, still.persistent[op])
            hold(scale.there[there], still.first[op], still.last[op], still.workspace[op])


@part
@no_type_check
def _shift(still, root, device, here, scale, targets):
    """Adds what a root's buffers change by on the device that ops leave and on each target."""
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
    _buffer(still, root, here, old_home, min(first[here], first[going]), max(last[here], last[going]), max(size[here],
    size[going]),
            elsewhere > 0 or old_home != here, scale.here, -1)  # fmt: skip
    if last[here] >= 0:
        _buffer(still, root, here, -1 if leaves else old_home, first[here], last[here], size[here], True, scale.here, 1)
    for there in targets:
        home = there if leaves else old_home
        away = elsewhere > 0 or old_home != there  # of the old step: the ops that move need it `here`
        if last[there] >= 0:
            _buffer(
                still,
                root,
                there,
                old_home,
                first[there],
                last[there],
                size[there],
                away or last[going] >= 0,
                scale.there[there],
                -1,
            )
        away = stay > (last[there] >= 0) if leaves else elsewhere > 0 or home != there
        begin, end = min(first[there], first[going]), max(last[there], last[going])
        _buffer(still, root, there, home, begin, end, max(size[there], size[going]), away, scale.there[there], 1)


@part
@no_type_check
def _buffer(still, root, on, home, first, last, size, away, change, sign):
    """Adds a root's buffer on a device that needs it from `first` to `last`, or takes it away.

    `away`: another device needs it, too.
    """
    if on == home:
        until = max(last, still.leaves[root]) if away else last
        hold(change, still.first[still.touches.root_op[root]], until, sign * still.touches.root_bytes[root])
    else:
        begin = arrives(still, root, on, first)
        hold(change, begin, max(begin, last), sign * size)


@part
@no_type_check
def hold(change, first, last, size):
    """Adds bytes that are held from one slice to another, as differences between neighbouring slices."""
    change[first] += size
    if last + 1 < len(change):
        change[last + 1] -= size
