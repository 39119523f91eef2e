"""Which ops wait to run on which devices, as a list scheduler in the order of time sees them.

An op whose inputs are all run competes on every device where its unit may stand and has room; one whose unit has a device, there.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.baselines.scheduling.compiled import allocates_nothing
from gnnplace.baselines.scheduling.heaps import Heaps, heaps, push
from gnnplace.baselines.scheduling.instance import Instance
from gnnplace.baselines.scheduling.list_schedule import OWN_END, choose, fits, ready_everywhere, ready_ns, settle
from gnnplace.baselines.scheduling.sequence import costly_inputs
from gnnplace.graph import NONE


class Ready(NamedTuple):
    """The ops that wait to run, in three heaps of (earliest start, number) a device.

    Of ops: the number in the order of ranks, how many inputs that cost are not run, on how many devices it competes (`NONE`: on that of
    its unit). Of devices: the favourite child of the op that each ran last, and when that could start there as ops were last held back.
    """

    number: Int64[np.ndarray, " ops"]
    waiting: Int64[np.ndarray, " ops"]
    options: Int64[np.ndarray, " ops"]
    awaited: Int64[np.ndarray, " devices"]
    until: Int64[np.ndarray, " devices"]
    later: Heaps  # inputs arrive when the device is free already
    now: Heaps  # as soon as the device is free, so by number alone
    held: Heaps  # the device waits for a favourite child


def nobody_yet(given: Instance, free: Bool[np.ndarray, " ops"]) -> Ready:
    """Nothing waits; `free` ops cost nothing. An op waits at most twice on a device: before and after its unit was given that device."""
    (ops,), (devices,) = free.shape, given.memory.shape
    number = np.empty(ops, dtype=np.int64)
    number[given.sequence] = np.arange(ops)
    waiting = costly_inputs(free, given.in_ptr, given.in_edges, given.edge_src)
    awaited, until = (np.full(devices, NONE, dtype=np.int64) for _ in range(2))
    return Ready(number, waiting, np.zeros(ops, dtype=np.int64), awaited, until, *(heaps(devices, 2 * ops) for _ in range(3)))


@no_type_check
@allocates_nothing
def offer(given, done, ready, op):
    """Lets an op wait on every device where its unit may stand; where none is left, a device is chosen as HEFT does."""
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
@allocates_nothing
def _offer_at_home(given, done, ready, op):
    home = done.device[given.unit[op]]
    push(ready.later, home, max(0, ready_ns(given, done, op, home, False)), ready.number[op])
    ready.options[op] = -1


@no_type_check
@allocates_nothing
def withdraw(given, done, ready, op):
    """An op can no longer go to a device on which it waited; whether it had to be given another."""
    if done.end[op] != -1 or ready.options[op] == -1:
        return False
    ready.options[op] -= 1
    lost = done.device[given.unit[op]] == -1 and ready.options[op] == 0
    if lost:
        settle(given, done, given.unit[op], choose(given, done, op, OWN_END))
    if done.device[given.unit[op]] != -1:
        _offer_at_home(given, done, ready, op)
    return lost
