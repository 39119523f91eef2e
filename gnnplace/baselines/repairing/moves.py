"""The value of moving a block to another device under frozen times.

The *relief* of a move is the decrease of the overflow of its two devices. Its *cost* is a sum of times: ops take longer
on the target, channels are busy for longer, and devices or channels exceed the time for which they may be busy. A move
that *hastens* the step saves such time; its cost is the increase of the bytes that the target holds.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from gnnplace.baselines.repairing.scale import add_root, arrives, carry, forget_roots, overflow
from gnnplace.compiled import kernel, part


@kernel
@no_type_check
def best_move(still, ops, device, here, scale, hastens):
    """The best relief per cost of moving a block off a device, and the target; 0 if no move relieves.

    If it `hastens`: the most time saved per byte that the target then holds more, if the target has room. `scale` then
    has the changes of what the device and each target hold.
    """
    num_devices, slices = scale.held.shape
    ops = ops[device[ops] == here]
    possible = np.ones(num_devices, np.bool_)
    possible[here] = False
    added_ns, roots = _lift(still, ops, scale, possible), _roots_of(still, ops, scale.seen)
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
    """The time that a move saves: of ops, of channels, and of what exceeds `limit_ns` on devices and channels."""
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
    """The increase of the time that a device or a channel is busy beyond the limit."""
    return max(0, load + change - limit_ns) - max(0, load - limit_ns)


@part
@no_type_check
def _lift(still, ops, scale, possible):
    """Marks the ops that move and their possible targets; returns the time that the ops take on each device."""
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
def _roots_of(still, ops, seen):
    """The distinct roots that ops consume or produce."""
    roots = [np.int64(-1)]
    roots.clear()  # Numba infers the type of an empty list from its first entry
    forget_roots(seen)
    for op in ops:
        for touch in range(still.touches.op_ptr[op], still.touches.op_ptr[op + 1]):
            root = np.int64(still.touches.of_op[touch])
            if add_root(seen, root):
                roots.append(root)
    return roots


@part
@no_type_check
def _reroute(still, root, device, here, scale):
    """Adds the change of the time that a root occupies channels, for each target, and marks targets without a link."""
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
    """Adds the persistent bytes and workspaces of the moving ops to each target, and takes them off their device."""
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
    """Adds the change of a root's buffers on the device that ops leave and on each target."""
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
    away = elsewhere > 0 or old_home != here
    begin, end, bytes_here = min(first[here], first[going]), max(last[here], last[going]), max(size[here], size[going])
    _buffer(still, root, here, old_home, begin, end, bytes_here, away, scale.here, -1)
    if last[here] >= 0:
        _buffer(still, root, here, -1 if leaves else old_home, first[here], last[here], size[here], True, scale.here, 1)
    for there in targets:
        home = there if leaves else old_home
        if last[there] >= 0:  # before the move, the ops that move need it `here`
            away = elsewhere > 0 or old_home != there or last[going] >= 0
            _buffer(still, root, there, old_home, first[there], last[there], size[there], away, scale.there[there], -1)
        away = stay > (last[there] >= 0) if leaves else elsewhere > 0 or home != there
        begin, end = min(first[there], first[going]), max(last[there], last[going])
        _buffer(still, root, there, home, begin, end, max(size[there], size[going]), away, scale.there[there], 1)


@part
@no_type_check
def _buffer(still, root, on, home, first, last, size, away, change, sign):
    """Adds a root's buffer on a device that needs it from `first` to `last`, or subtracts it.

    `away`: another device needs the root too.
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
    """Adds bytes held from slice `first` to slice `last`; `change` has differences of neighbouring slices."""
    change[first] += size
    if last + 1 < len(change):
        change[last + 1] -= size
