"""What a placement's devices hold and may hold under frozen times, and for how long devices and channels are busy."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.compiled import kernel, part


class Scale(NamedTuple):
    """What devices hold and may hold, their overflow and load and that of channels; and working memory.

    That is: the ops that move, the roots seen, what the device that they leave holds more, and what each target would;
    of one root, the first and last slice in which each device needs it and its size there, and of the ops that move;
    for each target, how much time it saves, whether it has the links, and how much longer each channel is busy.
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
    saved_ns: Int64[np.ndarray, " devices"]
    linked: Bool[np.ndarray, " devices"]
    carries: Int64[np.ndarray, "devices channels"]


@kernel
@no_type_check
def weighed(still, device, room, limit_ns, free_ns):
    """The scale of a placement, empty of moves."""
    num_devices, slices = still.allowed.shape[1], int(still.last.max()) + 1
    held, (load, carried) = held_bytes(still, device, slices), busy_ns(still, device)
    carries = np.zeros((num_devices, len(carried)), np.int64)
    over = np.zeros(num_devices)
    for each in range(num_devices):
        over[each] = overflow(held[each], room[each])
    seen, mark = np.full(len(still.touches.root_op), -1, np.int64), np.zeros(1, np.int64)
    first, last, size = (
        np.zeros(num_devices + 1, np.int64),
        np.zeros(num_devices + 1, np.int64),
        np.zeros(num_devices + 1, np.int64),
    )
    saved_ns, linked = np.zeros(num_devices, np.int64), np.ones(num_devices, np.bool_)
    here, there = np.zeros(slices), np.zeros((num_devices, slices))
    moved = np.zeros(len(device), np.bool_)
    return Scale(
        held,
        room,
        over,
        load,
        carried,
        limit_ns,
        free_ns,
        moved,
        seen,
        mark,
        here,
        there,
        first,
        last,
        size,
        saved_ns,
        linked,
        carries,
    )


@kernel
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
    """When a root arrives on a device that needs it from `first`: as it does now, or else just in time."""
    arrives = still.arrives[root, on]
    return arrives if still.known[root, on] else max(arrives, first)


@kernel
@no_type_check
def busy_ns(still, device):
    """For how long every device runs ops, and every channel carries transfers."""
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
    """Adds the times of all transfers of a root."""
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
    """Adds the time of a root's transfer to a device to that of its channel, or takes it away; False where there is no
    link.
    """
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
    """Adds to every number of an array. A loop, because the operator on slices takes seconds to compile."""
    for at in range(len(total)):
        total[at] += more[at]


@part
@no_type_check
def num_channels(still):
    """The number of channels; one where there are none, since numba's arrays need a length."""
    return int(still.channel.max()) + 1 if len(still.channel) > 0 else 1


@part
@no_type_check
def overflow(held, room):
    """What a device holds beyond its room in its worst slice, plus the mean over slices.

    So a move counts that relieves one of several equal peaks.
    """
    worst, total = 0.0, 0.0
    for at in range(len(held)):
        over = held[at] - room
        if over > 0:
            worst = max(worst, over)
            total += over
    return worst + total / len(held)
