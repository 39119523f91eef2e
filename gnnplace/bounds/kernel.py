"""The compiled pass over the ops that computes their heads by the three arguments of `paths`, on classes of devices.

`machine` is a tuple of the times of ops, the streams of classes, the bytes that ops hold, and the memories of classes
(see `relaxed`).
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from gnnplace.bounds.relaxed import NEVER
from gnnplace.compiled import kernel, part

NEAREST = 32  # ancestors that "together or apart" considers: those that end last
MAX_WAITING = 1024  # candidates that the search for them keeps


@kernel
@no_type_check
def ancestors(order, ptr, before):
    """A bit matrix: row v has bit u where op u is an ancestor of op v."""
    above = np.zeros((len(order), (len(order) + 63) // 64), np.uint64)
    for op in order:
        row = above[op]
        for edge in range(ptr[op], ptr[op + 1]):
            source = before[edge]
            for word, bits in enumerate(above[source]):
                row[word] |= bits
            row[source >> 6] |= np.uint64(1) << np.uint64(source & 63)
    return above


@kernel
@no_type_check
def heads(order, ptr, before, delay, machine, above, price, worth, error):
    """The head of each op on each class. Without prices (an empty array) the load of ancestors does not count."""
    time_ns, classes, ops = machine[0], len(machine[1]), len(order)
    head = np.zeros((ops, classes), np.int64)
    least = np.zeros(ops, np.int64)  # the head on the best class
    ends = np.zeros(ops, np.int64)  # the end on the best class
    latest = np.empty(ops, np.int64)  # the ops so far, by falling `least`
    between, apart = np.zeros((ops, classes), np.int64), np.zeros((ops, classes), np.int64)
    scratch = (
        between,
        apart,
        np.full(ops, -1, np.int64),
        np.zeros(ops, np.bool_),
        np.empty((2, MAX_WAITING), np.int64),
    )
    for count, op in enumerate(order):
        loaded, alone = 0, _has_one_input(op, ptr, before)
        if len(price) and not alone and not _has_one_last_input(op, ptr, before, ends, above):
            loaded = _load(op, latest[:count], least, above[op], price, worth, error)
        least[op] = ends[op] = NEVER
        for c in range(classes):
            if time_ns[op, c] >= NEVER:
                head[op, c] = NEVER
                continue
            start = loaded
            for edge in range(ptr[op], ptr[op + 1]):
                start = max(start, _arrival(head, time_ns, before[edge], delay[edge], c))
            if start < NEVER and not alone:
                start = _together_or_apart(
                    op, c, start, ptr, before, delay, machine, head, ends, scratch, op * classes + c
                )
            head[op, c] = min(start, NEVER)
            least[op], ends[op] = min(least[op], head[op, c]), min(ends[op], head[op, c] + time_ns[op, c])
        place = count
        while len(price) and place > 0 and least[latest[place - 1]] < least[op]:
            latest[place] = latest[place - 1]
            place -= 1
        latest[place] = op
    return head


@part
@no_type_check
def _has_one_input(op, ptr, before):
    """Whether all in-edges come from one op. The head of that op and the path from it then give the best bound."""
    same = True
    for edge in range(ptr[op] + 1, ptr[op + 1]):
        same &= before[edge] == before[ptr[op]]
    return same


@part
@no_type_check
def _has_one_last_input(op, ptr, before, ends, above):
    """Whether all other inputs are ancestors of the last one. The load bound of that input then covers them."""
    last = before[ptr[op]]
    for edge in range(ptr[op] + 1, ptr[op + 1]):
        if ends[before[edge]] > ends[last]:
            last = before[edge]
    for edge in range(ptr[op], ptr[op + 1]):
        other = before[edge]
        if other != last and not (above[last, other >> 6] >> np.uint64(other & 63)) & np.uint64(1):
            return False
    return True


@part
@no_type_check
def _load(op, latest, least, above, price, worth, error):
    """The largest, over a, of a plus the load of the ancestors that start at a or later."""
    best, work = 0, 0.0
    for other in latest:
        if (above[other >> 6] >> np.uint64(other & 63)) & np.uint64(1):
            work += price[other]
            if least[other] < NEVER:
                best = max(best, least[other] + np.int64(np.ceil(work * (1 - error) - worth * (1 + error))))
    return best


@part
@no_type_check
def _arrival(head, time_ns, source, delay, c):
    """The earliest arrival of the source's output on class c, over all classes of the source; on the same class there
    is no transfer.
    """
    earliest = NEVER
    for a in range(len(delay)):
        sent = 0 if a == c else delay[a, c]
        earliest = min(earliest, head[source, a] + time_ns[source, a] + sent)
    return earliest


@part
@no_type_check
def _together_or_apart(op, c, start, ptr, before, delay, machine, head, ends, scratch, stamp):
    """The earliest start on class c by "together or apart" (see `paths`), `start` or later."""
    time_ns, classes = machine[0], len(machine[1])
    between, apart, seen, waits, heap = (
        scratch  # least time from the end of an ancestor to the start of op; the same if they are on two devices
    )
    heap_end, heap_op = heap
    near, arrives = np.empty(NEAREST, np.int64), np.empty(NEAREST, np.int64)
    size, count, here = 0, 0, op
    while True:
        for edge in range(ptr[here], ptr[here + 1]):
            source = before[edge]
            if seen[source] != stamp:
                seen[source], waits[source] = stamp, False
                between[source], apart[source] = 0, 0
            for a in range(classes):
                on, off = _between(op, here, a, c, delay[edge], time_ns, between, apart)
                between[source, a] = max(between[source, a], min(on, NEVER))
                apart[source, a] = max(apart[source, a], min(off, NEVER))
            if not waits[source] and _apart_arrival(source, head, time_ns, apart) > start and size < MAX_WAITING:
                waits[source] = True
                _push(heap_end, heap_op, size, ends[source], source)
                size += 1
        if size == 0 or count == NEAREST:
            break
        here, size = heap_op[0], size - 1
        _pop(heap_end, heap_op, size)
        near[count], arrives[count] = here, _apart_arrival(here, head, time_ns, apart)
        count += 1
    return _best_split(op, c, start, near[:count], arrives[:count], machine, head)


@part
@no_type_check
def _apart_arrival(source, head, time_ns, apart):
    """The earliest arrival of an ancestor's output if the ancestor is on another device than the op."""
    arrival = NEVER
    for a in range(time_ns.shape[1]):
        arrival = min(arrival, head[source, a] + time_ns[source, a] + apart[source, a])
    return arrival


@part
@no_type_check
def _between(op, here, a, c, delay, time_ns, between, apart):
    """The least time from the end of a source on class a to the start of op by way of `here`; and the same if they are
    on two devices.
    """
    if here == op:
        return (0 if a == c else delay[a, c]), delay[a, c]
    on = time_ns[here, a] + between[here, a]
    off = min(time_ns[here, a] + apart[here, a], delay[a, c] + time_ns[here, c] + between[here, c])
    for b in range(len(delay)):
        if b != a:
            on = min(on, delay[a, b] + time_ns[here, b] + between[here, b])
            off = min(off, delay[a, b] + time_ns[here, b] + apart[here, b])
    return on, off


@part
@no_type_check
def _best_split(op, c, start, near, arrives, machine, head):
    """The least, over j, of the larger of two times: the end of the j latest arrivals on op's device, and the arrival
    of the next one.
    """
    if len(near) == 0:
        return start
    by_arrival = _descending(arrives)
    rank = np.empty(len(near), np.int64)
    for place in range(len(near)):
        rank[by_arrival[place]] = place
    by_head = _descending(head[near, c])
    low, high, split, together = 1, len(near), 0, 0
    while low <= high:  # the first j >= 1 for which the j ops on one device end no earlier than the next one arrives
        j = (low + high) // 2
        took = _on_one_device(op, c, start, near, by_head, rank, j, machine, head)
        if took >= (arrives[by_arrival[j]] if j < len(near) else 0):
            split, together, high = j, took, j - 1
        else:
            low = j + 1
    return max(start, min(together, arrives[by_arrival[split - 1]]))


@part
@no_type_check
def _descending(keys):
    """The positions of `keys` by falling key: an insertion sort, since they are few."""
    order = np.empty(len(keys), np.int64)
    for count, key in enumerate(keys):
        place = count
        while place > 0 and keys[order[place - 1]] < key:
            order[place] = order[place - 1]
            place -= 1
        order[place] = count
    return order


@part
@no_type_check
def _on_one_device(op, c, start, near, by_head, rank, j, machine, head):
    """The earliest end of the first j ancestors on one device of class c: over all a, a plus the work of those that
    start at a or later.
    """
    time_ns, streams, held, memory = machine
    took, work, kept = start, 0, held[op]
    for i in by_head:
        other = near[i]
        if rank[i] < j:
            work += time_ns[other, c]
            kept += held[other]
            if work >= NEVER or kept > memory[c] or head[other, c] >= NEVER:
                return NEVER
            took = max(took, head[other, c] + (work + streams[c] - 1) // streams[c])
    return took


@part
@no_type_check
def _push(keys, values, size, key, value):
    place = size
    while place > 0 and keys[(place - 1) // 2] < key:
        keys[place], values[place] = keys[(place - 1) // 2], values[(place - 1) // 2]
        place = (place - 1) // 2
    keys[place], values[place] = key, value


@part
@no_type_check
def _pop(keys, values, size):
    """Removes the largest key; `size` entries remain."""
    key, value, place = keys[size], values[size], 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[place], values[place] = keys[child], values[child]
        place = child
    keys[place], values[place] = key, value
