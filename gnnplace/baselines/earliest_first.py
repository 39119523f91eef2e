"""Scheduling in the order of time: of all ready ops on all devices the one that can start first is next (ETF; Hwang et al., 1989).

Equals go by rank, then by the shorter time. A device's ready ops wait in two heaps: those whose inputs arrive later, by when; and those
that could start as soon as it is free, by rank. Messages share channels, so an op may have become later since, never earlier: it
is looked at again when it comes to the top. Where ops have favourite children (SCT; Hanen and Munier, 1995), a device that has run
an op waits for its favourite child, if that is ready, has no device yet and can start nowhere earlier; until the child's start the
device takes only urgent ops, those whose inputs could be on every device by then.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple, no_type_check

import numba
import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.gaps import NEVER, take
from gnnplace.baselines.legal import device_sets
from gnnplace.baselines.list_schedule import Guide, Instance, choose, fits, instance, nothing_yet, place, ready_ns, settle
from gnnplace.baselines.ranks import upward_rank_ns
from gnnplace.baselines.sequence import append_after_inputs, costly, costly_inputs, sequence
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.units import Units, expand

LOST = -2


class Ready(NamedTuple):
    """Of ops: the number in the order of ranks, how many inputs that cost are not run, how many devices compete (`NONE`: it has one).

    Of devices: the favourite child of the op that each ran last.
    """

    number: Int64[np.ndarray, " ops"]
    waiting: Int64[np.ndarray, " ops"]
    options: Int64[np.ndarray, " ops"]
    awaited: Int64[np.ndarray, " devices"]


def fastest_earliest_first(
    problem: Problem, evaluate: Evaluator, units: Units, favourite: Int64[np.ndarray, " ops"], schedule: Schedule
) -> Placement:
    """The faster of two schedules, on all legal devices and without CPUs; `favourite` is the favourite child of each op or `NONE`.

    Raises ValueError where a unit may stand nowhere.
    """
    guide = Guide(sequence(problem.graph, upward_rank_ns(problem)))
    given = [instance(problem, units, legal, guide) for legal in device_sets(problem, units)]
    found = [schedule_earliest_first(problem.graph, each, favourite)[0] for each in given]
    return fastest(problem, [Placement(expand(units, device), schedule) for device in found], evaluate)


def schedule_earliest_first(
    graph: ComputationGraph, given: Instance, favourite: Int64[np.ndarray, " ops"]
) -> tuple[Int32[np.ndarray, " units"], int]:
    """The device of each unit and the length of the schedule in ns; `given.sequence` is by rank, `favourite` the child of each op or -1."""
    done, free = nothing_yet(given), ~costly(graph)
    waiting = costly_inputs(free, given.in_ptr, given.in_edges, given.edge_src)
    number = np.argsort(given.sequence)
    ready = Ready(number, waiting, np.zeros_like(number), np.full(len(given.memory), NONE, dtype=np.int64))
    _schedule(given, done, ready, free, favourite, graph.out_ptr, graph.edge_dst)
    return done.device, int(done.end.max())


@no_type_check
@numba.njit(cache=True)
def _schedule(given, done, ready, free, favourite, out_ptr, edge_dst):
    ops, devices = given.time_ns.shape
    later = [[(np.int64(0), np.int64(0)) for _ in range(0)] for _ in range(devices)]  # (earliest start, number)
    now = [[np.int64(0) for _ in range(0)] for _ in range(devices)]  # number
    order, leader, count = np.empty(ops, np.int64), np.full(ops, -1), 0
    for op in given.sequence:
        if ready.waiting[op] == 0 and not free[op]:
            _offer(given, done, ready, later, op)
    for _ in range(ops - free.sum()):
        op, device, start = -1, -1, NEVER
        while op == -1:  # one that lost its last device was offered on another
            op, device, start = _earliest(given, done, ready, later, now)
        if done.device[given.unit[op]] == -1:
            settle(given, done, given.unit[op], device)
        before, count = count, append_after_inputs(op, order, leader, count, given.in_ptr, given.in_edges, given.edge_src)
        for led in order[before:count]:
            _run(given, done, led, device, start if led == op else 0)
        ready.awaited[device] = favourite[op]
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            ready.waiting[edge_dst[edge]] -= 1
            if ready.waiting[edge_dst[edge]] == 0:
                _offer(given, done, ready, later, edge_dst[edge])
    for op in given.sequence:
        if leader[op] == -1:  # it costs nothing, and nor do its consumers
            leader[op] = op
            _run(given, done, op, -1, 0)


@no_type_check
@numba.njit(cache=True)
def _run(given, done, op, beside, earliest):
    """Runs an op behind all others on the device of its unit, from `earliest` on."""
    device = place(given, done, op, beside, False)
    stream, gap, free = _free(given, done, device)
    start = max(earliest, free, ready_ns(given, done, op, device, True))
    take(done.stream, stream, gap, start, given.time_ns[op, device])
    done.end[op] = start + given.time_ns[op, device]


@no_type_check
@numba.njit(cache=True)
def _free(given, done, device):
    """The stream that is free first after all its ops, its last gap and when that begins."""
    stream = given.streams[device]
    for other in range(stream + 1, given.streams[device + 1]):
        if done.stream.begins[other, done.stream.number[other] - 1] < done.stream.begins[stream, done.stream.number[stream] - 1]:
            stream = other
    gap = done.stream.number[stream] - 1
    return stream, gap, done.stream.begins[stream, gap]


@no_type_check
@numba.njit(cache=True)
def _offer(given, done, ready, later, op):
    """Lets an op wait on every device where its unit may stand; where none is left, a device is chosen as HEFT does."""
    unit = given.unit[op]
    if done.device[unit] == -1:
        for device in range(len(given.memory)):
            arrived = ready_ns(given, done, op, device, False)
            if fits(given, done, unit, device) and arrived != -1:
                heapq.heappush(later[device], (np.int64(arrived), ready.number[op]))
                ready.options[op] += 1
        if ready.options[op] > 0:
            return
        settle(given, done, unit, choose(given, done, op, False))
    _offer_at_home(given, done, ready, later, op)


@no_type_check
@numba.njit(cache=True)
def _offer_at_home(given, done, ready, later, op):
    home = done.device[given.unit[op]]
    heapq.heappush(later[home], (np.int64(max(0, ready_ns(given, done, op, home, False))), ready.number[op]))
    ready.options[op] = -1


@no_type_check
@numba.njit(cache=True)
def _withdraw(given, done, ready, later, op):
    """An op can no longer go to a device on which it waited; whether it had to be given another."""
    if done.end[op] != -1 or ready.options[op] == -1:
        return False
    ready.options[op] -= 1
    lost = done.device[given.unit[op]] == -1 and ready.options[op] == 0
    if lost:
        settle(given, done, given.unit[op], choose(given, done, op, False))
    if done.device[given.unit[op]] != -1:
        _offer_at_home(given, done, ready, later, op)
    return lost


@no_type_check
@numba.njit(cache=True)
def _earliest(given, done, ready, later, now):
    """The op that can start first, where and when; -1 where another must be looked at again."""
    best, best_device, best_start = -1, -1, NEVER
    for device in range(len(given.memory)):
        op, start = _first(given, done, ready, later, now, device, best_start)
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
@numba.njit(cache=True)
def _first(given, done, ready, later, now, device, limit):
    """The op that can start first on a device, and when; -1 where none can up to a limit, `LOST` if one got another device."""
    while True:
        free = _free(given, done, device)[2]
        while len(later[device]) > 0 and later[device][0][0] <= free:
            heapq.heappush(now[device], heapq.heappop(later[device])[1])
        if len(now[device]) > 0:
            listed, op = free, given.sequence[now[device][0]]
        elif len(later[device]) > 0:
            listed, op = later[device][0][0], given.sequence[later[device][0][1]]
        else:
            return -1, NEVER
        if listed > limit:
            return -1, NEVER
        start = _start(given, done, ready, op, device, free)
        if start != -1 and start <= listed:
            return op, start
        if len(now[device]) > 0:
            heapq.heappop(now[device])
        else:
            heapq.heappop(later[device])
        if start != -1:
            heapq.heappush(later[device], (np.int64(start), ready.number[op]))
        elif _withdraw(given, done, ready, later, op):
            return LOST, NEVER


@no_type_check
@numba.njit(cache=True)
def _start(given, done, ready, op, device, free):
    """When an op can start on a device that is free from then on, -1 where it can't (any more)."""
    home = done.device[given.unit[op]]
    if done.end[op] != -1 or (home != -1 and home != device):
        return -1
    arrived = ready_ns(given, done, op, device, False)
    if home == -1 and (arrived == -1 or not fits(given, done, given.unit[op], device)):
        return -1
    start, child = max(free, arrived), ready.awaited[device]
    if child == -1 or child == op or ready.waiting[child] > 0 or done.device[given.unit[child]] != -1:
        return start
    return _beside_child(given, done, op, child, device, start)


@no_type_check
@numba.njit(cache=True)
def _beside_child(given, done, op, child, device, start):
    """When an op that could start on a device may do so, if this waits for a favourite child."""
    here, urgent = _child_start(given, done, child, device), start
    for other in range(len(given.memory)):
        if _child_start(given, done, child, other) < here:
            return start
        urgent = max(urgent, ready_ns(given, done, op, other, False))
    if start > here or here == NEVER:
        return start
    return urgent if urgent < here else here + 1


@no_type_check
@numba.njit(cache=True)
def _child_start(given, done, child, device):
    arrived = ready_ns(given, done, child, device, False)
    if arrived == -1 or not fits(given, done, given.unit[child], device):
        return NEVER
    return max(_free(given, done, device)[2], arrived)
