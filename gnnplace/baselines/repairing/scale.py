"""The memory and the load of a placement under frozen times: what devices hold, how long devices and channels work."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.compiled import kernel, part


class Seen(NamedTuple):
    """A set of roots that is emptied in constant time: root r is in it if `round_of[r]` is the current round."""

    round_of: Int64[np.ndarray, " roots"]
    current: Int64[np.ndarray, " 1"]


class Scale(NamedTuple):
    """The state of a placement by which moves are weighed, and working memory for one move.

    State: the bytes that each device holds and may hold, its overflow, the load of devices and channels, the time for
    which they may be busy, and the cost of a move that costs no time.
    """

    held: Float[np.ndarray, "devices slices"]
    room: Float[np.ndarray, " devices"]
    over: Float[np.ndarray, " devices"]
    load: Int64[np.ndarray, " devices"]
    carried: Int64[np.ndarray, " channels"]
    limit_ns: int
    free_ns: float
    # working memory: the ops that move, the roots seen, and the change of what their device and each target hold
    moved: Bool[np.ndarray, " ops"]
    seen: Seen
    here: Float[np.ndarray, " slices"]
    there: Float[np.ndarray, "devices slices"]
    # of one root: the first and last slice in which each device needs it and its size there; last, the ops that move
    first: Int64[np.ndarray, " devices_plus_1"]
    last: Int64[np.ndarray, " devices_plus_1"]
    size: Int64[np.ndarray, " devices_plus_1"]
    # of each target: the time that the move saves, whether all links exist, how much longer each channel is busy
    saved_ns: Int64[np.ndarray, " devices"]
    linked: Bool[np.ndarray, " devices"]
    carries: Int64[np.ndarray, "devices channels"]


@kernel
@no_type_check
def weighed(still, device, room, limit_ns, free_ns):
    """The state of a placement, and working memory with no op marked as moving."""
    num_devices, slices = still.allowed.shape[1], int(still.last.max()) + 1
    held, (load, carried) = held_bytes(still, device, slices), busy_ns(still, device)
    carries = np.zeros((num_devices, len(carried)), np.int64)
    over = np.zeros(num_devices)
    for each in range(num_devices):
        over[each] = overflow(held[each], room[each])
    seen = Seen(np.full(len(still.touches.root_op), -1, np.int64), np.zeros(1, np.int64))
    first, last, size = (
        np.zeros(num_devices + 1, np.int64),
        np.zeros(num_devices + 1, np.int64),
        np.zeros(num_devices + 1, np.int64),
    )
    saved_ns, linked = np.zeros(num_devices, np.int64), np.ones(num_devices, np.bool_)
    here, there = np.zeros(slices), np.zeros((num_devices, slices))
    moved = np.zeros(len(device), np.bool_)
    return Scale(
        held, room, over, load, carried, limit_ns, free_ns,
        moved, seen, here, there, first, last, size, saved_ns, linked, carries,
    )  # fmt: skip


@part
@no_type_check
def forget_roots(seen):
    """Empties the set."""
    seen.current[0] += 1


@part
@no_type_check
def add_root(seen, root):
    """Adds a root; True if it was not in the set."""
    new = seen.round_of[root] != seen.current[0]
    seen.round_of[root] = seen.current[0]
    return new


@kernel
@no_type_check
def held_bytes(still, device, slices):
    """The bytes that every device holds in every slice."""
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
                begin, size = arrives(still, root, here, first_of[here]), size_of[here]
                end = max(begin, last_of[here])
            held[here, begin] += size
            held[here, end + 1] -= size
    for here in range(num_devices):
        for at in range(1, slices + 1):
            held[here, at] += held[here, at - 1]
    return held[:, :slices]


@part
@no_type_check
def arrives(still, root, on, first):
    """The slice in which a root arrives on a device that needs it from `first`: as now, or else just in time."""
    arrives = still.arrives[root, on]
    return arrives if still.fixed[root, on] else max(arrives, first)


@kernel
@no_type_check
def busy_ns(still, device):
    """The time that every device runs ops, and that every channel carries transfers."""
    load, sent = np.zeros(still.allowed.shape[1], np.int64), np.zeros(still.allowed.shape[1], np.bool_)
    for op in range(len(device)):
        load[device[op]] += still.time_ns[op, device[op]]
    carried = np.zeros(num_channels(still), np.int64)
    for root in range(len(still.touches.root_op)):
        carry_all(still, root, device, carried, sent)
    return load, carried


@part
@no_type_check
def carry_all(still, root, device, carried, sent):
    """Adds the times of all transfers of a root to those of their channels."""
    home = device[still.touches.root_op[root]]
    sent[:] = False
    for touch in range(still.touches.ptr[root], still.touches.ptr[root + 1]):
        here = device[still.touches.op[touch]]
        if not sent[here]:
            sent[here] = True
            carry(still, root, home, here, carried, 1)


@part
@no_type_check
def carry(still, root, home, on, carried, sign):
    """Adds the time of a root's transfer to its channel (`sign` 1), or subtracts it (-1). False without a link."""
    if home == on:
        return True
    link = still.link[home, on]
    if link < 0:
        return False
    carried[still.channel[link]] += sign * still.touches.sent_ns[root, still.rate[link]]
    return True


@part
@no_type_check
def add(total, more):
    """Adds one array to another. A loop, because the operator on slices takes seconds to compile."""
    for at in range(len(total)):
        total[at] += more[at]


@part
@no_type_check
def num_channels(still):
    """The number of channels, at least one, since Numba's arrays need a length."""
    return int(still.channel.max()) + 1 if len(still.channel) > 0 else 1


@part
@no_type_check
def overflow(held, room):
    """The bytes beyond the room of a device in its worst slice, plus their mean over slices.

    The mean rewards a move that relieves one of several equal peaks.
    """
    worst, total = 0.0, 0.0
    for at in range(len(held)):
        over = held[at] - room
        if over > 0:
            worst = max(worst, over)
            total += over
    return worst + total / len(held)
