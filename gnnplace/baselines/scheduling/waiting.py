"""The ops that wait to run on each device, for `earliest_first`.

A ready op waits on every device that is allowed for its unit and has room. If its unit has a device, it waits there
alone.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.baselines.scheduling.heaps import Heaps, heaps, push
from gnnplace.baselines.scheduling.instance import Instance
from gnnplace.baselines.scheduling.list_schedule import OWN_END, choose, fits, ready_everywhere, ready_ns, settle
from gnnplace.baselines.scheduling.sequence import costly_inputs
from gnnplace.compiled import part_allocates_nothing
from gnnplace.graph import NONE


class Ready(NamedTuple):
    """The ops that wait to run: three heaps of (earliest start, number) per device.

    For each op: `number` is its position by rank, `waiting` the number of inputs with a cost that have not run, and
    `options` the number of devices on which it waits (`NONE`: only on the device of its unit). For each device:
    `awaited` is the favourite child of the op that ran last, and `until` the start of that child when the device last
    held ops back.
    """

    number: Int64[np.ndarray, " ops"]
    waiting: Int64[np.ndarray, " ops"]
    options: Int64[np.ndarray, " ops"]
    awaited: Int64[np.ndarray, " devices"]
    until: Int64[np.ndarray, " devices"]
    later: Heaps  # inputs arrive after the device is idle, by arrival
    now: Heaps  # can start as soon as the device is idle, by number
    held: Heaps  # held back while the device waits for a favourite child


def nobody_yet(given: Instance, free: Bool[np.ndarray, " ops"]) -> Ready:
    """Empty heaps; `free` marks ops without cost.

    An op enters the heaps of a device at most twice: before and after its unit gets it.
    """
    (ops,), (devices,) = free.shape, given.memory.shape
    number = np.empty(ops, dtype=np.int64)
    number[given.sequence] = np.arange(ops)
    waiting = costly_inputs(free, given.in_ptr, given.in_edges, given.edge_src)
    awaited, until = (np.full(devices, NONE, dtype=np.int64) for _ in range(2))
    return Ready(
        number, waiting, np.zeros(ops, dtype=np.int64), awaited, until, *(heaps(devices, 2 * ops) for _ in range(3))
    )


@no_type_check
@part_allocates_nothing
def offer(given, done, ready, op):
    """Lets an op wait on every possible device of its unit. If there is none, the unit gets a device as in HEFT."""
    unit = given.unit[op]
    if done.device[unit] == -1:
        ready_everywhere(given, done, op)
        for device in range(len(given.memory)):
            if fits(given, done, unit, device) and done.ready[device] != -1:
                push(ready.later, device, done.ready[device], ready.number[op])
                ready.options[op] += 1
        if ready.options[op] > 0:
            return
        settle(given, done, unit, choose(given, done, op, OWN_END))
    _offer_at_home(given, done, ready, op)


@no_type_check
@part_allocates_nothing
def _offer_at_home(given, done, ready, op):
    """Lets an op wait on the device of its unit."""
    home = done.device[given.unit[op]]
    push(ready.later, home, max(0, ready_ns(given, done, op, home, False)), ready.number[op])
    ready.options[op] = -1


@no_type_check
@part_allocates_nothing
def withdraw(given, done, ready, op):
    """Removes one of the devices on which an op waits.

    Returns True if it was the last one, so that the unit got another device.
    """
    if done.end[op] != -1 or ready.options[op] == -1:
        return False
    ready.options[op] -= 1
    lost = done.device[given.unit[op]] == -1 and ready.options[op] == 0
    if lost:
        settle(given, done, given.unit[op], choose(given, done, op, OWN_END))
    if done.device[given.unit[op]] != -1:
        _offer_at_home(given, done, ready, op)
    return lost
