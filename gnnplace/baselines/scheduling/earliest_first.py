"""Earliest task first: of all ready ops on all devices, the op that can start first is next (ETF; Hwang et al., 1989).

Ties go by rank, then by the shorter time. The ready ops of a device wait in two heaps: ops whose inputs arrive later,
by arrival, and ops that can start as soon as the device is idle, by rank. Transfers share channels, so the start of a
waiting op may move later, but never earlier; it is computed again when the op reaches the top of its heap.

With favourite children (SCT; Hanen and Munier, 1995), a device that has run an op waits for the favourite child of the
op if the child is ready, has no device yet and can start nowhere earlier. Until the start of the child the device takes
only urgent ops: those whose inputs could be on every device by then.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.baselines.legal import device_sets
from gnnplace.baselines.scheduling.gaps import NEVER, take
from gnnplace.baselines.scheduling.heaps import is_less, pop, push
from gnnplace.baselines.scheduling.instance import Guide, Instance, instance, nothing_yet
from gnnplace.baselines.scheduling.list_schedule import OWN_END, fits, place, ready_ns, settle
from gnnplace.baselines.scheduling.ranks import upward_rank_ns
from gnnplace.baselines.scheduling.sequence import append_after_inputs, costly, sequence
from gnnplace.baselines.scheduling.waiting import nobody_yet, offer, withdraw
from gnnplace.baselines.single import fastest_that_fits
from gnnplace.compiled import allocates_nothing, part_allocates_nothing
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import Units, expand

LOST = -2


def fastest_earliest_first(
    problem: Problem, evaluate: Evaluator, units: Units, favourite: Int64[np.ndarray, " ops"], schedule: Schedule
) -> Placement:
    """The faster of two placements: on all allowed devices, and without CPUs.

    `favourite` is the favourite child of each op, or `NONE`. If neither placement fits, there are two more, for which
    memories also hold outputs that live for most of the step. Raises ValueError if a unit is allowed on no device.
    """
    guide = Guide(sequence(problem.graph, upward_rank_ns(problem)))

    def proposed(kept: bool) -> list[Placement]:
        given = [instance(problem, units, allowed, guide, kept) for allowed in device_sets(problem, units)]
        rows = [schedule_earliest_first(problem.graph, each, favourite)[0] for each in given]
        return [Placement(expand(units, device), schedule) for device in rows]

    return fastest_that_fits(problem, map(proposed, (False, True)), evaluate)


def schedule_earliest_first(
    graph: ComputationGraph, given: Instance, favourite: Int64[np.ndarray, " ops"]
) -> tuple[Int32[np.ndarray, " units"], int]:
    """The device of each unit and the length of the schedule in ns. `given.sequence` must be by rank."""
    done, free, ops = nothing_yet(given), ~costly(graph), graph.num_ops
    order, leader, stack = (
        np.empty(ops, dtype=np.int64),
        np.full(ops, NONE, dtype=np.int64),
        np.empty(graph.num_edges + 1, dtype=np.int64),
    )
    _schedule(
        given, done, nobody_yet(given, free), free, favourite, graph.out_ptr, graph.edge_dst, (order, leader, stack)
    )
    return done.device, int(done.end.max())


@no_type_check
@allocates_nothing
def _schedule(given, done, ready, free, favourite, out_ptr, edge_dst, room):
    order, leader, stack = room  # working memory: the ops that ran so far and their leaders
    count, costing = 0, 0
    for op in given.sequence:
        costing += not free[op]
        if ready.waiting[op] == 0 and not free[op]:
            offer(given, done, ready, op)
    for _ in range(costing):
        op, device, start = -1, -1, NEVER
        while op == -1:  # again after an op lost its last device and moved to another
            op, device, start = _earliest(given, done, ready)
        if done.device[given.unit[op]] == -1:
            settle(given, done, given.unit[op], device)
        before, count = (
            count,
            append_after_inputs(op, order, leader, count, stack, given.in_ptr, given.in_edges, given.edge_src),
        )
        for led in order[before:count]:
            _run(given, done, led, device, start if led == op else 0)
        ready.awaited[device], ready.until[device] = favourite[op], -1
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            ready.waiting[edge_dst[edge]] -= 1
            if ready.waiting[edge_dst[edge]] == 0:
                offer(given, done, ready, edge_dst[edge])
    for op in given.sequence:
        if leader[op] == -1:  # neither the op nor its consumers have a cost
            leader[op] = op
            _run(given, done, op, -1, 0)


@no_type_check
@part_allocates_nothing
def _run(given, done, op, beside, earliest):
    """Schedules an op after all others on the device of its unit, at `earliest` or later."""
    device = place(given, done, op, beside, OWN_END)
    stream, gap, free = _free(given, done, device)
    start = max(earliest, free, ready_ns(given, done, op, device, True))
    take(done.stream, stream, gap, start, given.time_ns[op, device])
    done.end[op] = start + given.time_ns[op, device]


@no_type_check
@part_allocates_nothing
def _free(given, done, device):
    """The stream of a device that is idle first after all its ops, its last gap, and the start of that gap."""
    stream = given.streams[device]
    for other in range(stream + 1, given.streams[device + 1]):
        if (
            done.stream.begins[other, done.stream.number[other] - 1]
            < done.stream.begins[stream, done.stream.number[stream] - 1]
        ):
            stream = other
    gap = done.stream.number[stream] - 1
    return stream, gap, done.stream.begins[stream, gap]


@no_type_check
@part_allocates_nothing
def _earliest(given, done, ready):
    """The op that can start first, its device and its start; -1 if the search must start again."""
    best, best_device, best_start = -1, -1, NEVER
    for device in range(len(given.memory)):
        op, start = _first(given, done, ready, device, best_start)
        if op == LOST:
            return -1, -1, NEVER
        if op == -1:
            continue
        if start == best_start:
            if ready.number[op] > ready.number[best]:
                continue
            if op == best and given.time_ns[op, device] >= given.time_ns[op, best_device]:
                continue
        best, best_device, best_start = op, device, start
    return best, best_device, best_start


@no_type_check
@part_allocates_nothing
def _first(given, done, ready, device, limit):
    """The op that can start first on a device, and its start.

    The op is -1 if none can start by `limit`, and `LOST` if an op moved to another device.
    """
    later, now, held, free = ready.later, ready.now, ready.held, _free(given, done, device)[2]
    _release(given, done, ready, device)
    while True:
        while later.size[device] > 0 and later.key[device, 0] <= free:
            push(now, device, 0, pop(later, device))
        waits = now if now.size[device] > 0 else held if is_less(held, later, device) else later
        if waits.size[device] == 0 or max(free, waits.key[device, 0]) > limit:
            return -1, NEVER
        listed, op = max(free, waits.key[device, 0]), given.sequence[waits.number[device, 0]]
        start, holds = _start(given, done, ready, op, device, free)
        if start != -1 and start <= listed:
            return (op, start) if start < NEVER else (-1, NEVER)
        pop(waits, device)
        if start != -1:
            push(held if holds else later, device, start, ready.number[op])
        elif withdraw(given, done, ready, op):
            return LOST, NEVER


@no_type_check
@part_allocates_nothing
def _release(given, done, ready, device):
    """Releases the ops that a device holds back, once the favourite child has a device or another start on this one."""
    child = ready.awaited[device]
    if ready.held.size[device] == 0 or (
        child != -1
        and done.device[given.unit[child]] == -1
        and _child_start(given, done, child, device) == ready.until[device]
    ):
        return
    while ready.held.size[device] > 0:
        push(ready.now, device, 0, pop(ready.held, device))


@no_type_check
@part_allocates_nothing
def _start(given, done, ready, op, device, free):
    """The start of an op on a device that is idle from `free` on, and whether the device holds the op back.

    The start is -1 if the op can't run there.
    """
    home = done.device[given.unit[op]]
    if done.end[op] != -1 or (home != -1 and home != device):
        return -1, False
    arrived = ready_ns(given, done, op, device, False)
    if home == -1 and (arrived == -1 or not fits(given, done, given.unit[op], device)):
        return -1, False
    start, child = max(free, arrived), ready.awaited[device]
    if child == -1 or child == op or ready.waiting[child] > 0 or done.device[given.unit[child]] != -1:
        return start, False
    return _beside_child(given, done, ready, op, child, device, start)


@no_type_check
@part_allocates_nothing
def _beside_child(given, done, ready, op, child, device, start):
    """The start of an op on a device that waits for a favourite child, and whether the device holds the op back."""
    here, urgent = _child_start(given, done, child, device), start
    for other in range(len(given.memory)):
        if _child_start(given, done, child, other) < here:
            return start, False
        if given.allowed[given.unit[op], other]:
            urgent = max(urgent, ready_ns(given, done, op, other, False))
    if start > here or here == NEVER or urgent == start:
        return start, False
    ready.until[device] = here
    return (urgent if urgent < here else NEVER), True


@no_type_check
@part_allocates_nothing
def _child_start(given, done, child, device):
    """The start of a favourite child on a device once the device is idle; NEVER if it can't run there."""
    arrived = ready_ns(given, done, child, device, False)
    if arrived == -1 or not fits(given, done, given.unit[child], device):
        return NEVER
    return max(_free(given, done, device)[2], arrived)
