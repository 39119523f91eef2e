"""List scheduling of units on devices: one op after another in a given sequence, with insertion, transfers and memory.

The schedule is an estimate for the choice of devices; an evaluator computes the step time of the placement. Transfers
occupy channels, but no streams, even on a device that copies by itself. An output is sent once to each device. Inputs
from ops without a device yet count as ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Int32

from gnnplace.baselines.legal import device_sets
from gnnplace.baselines.scheduling.gaps import earliest, take
from gnnplace.baselines.scheduling.instance import Guide, Instance, instance, nothing_yet
from gnnplace.baselines.single import fastest
from gnnplace.compiled import allocates_nothing, part_allocates_nothing
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import Units, expand

VIEWS = OWN_END, MESSAGES, LOADS = 0, 1, 2  # estimates of a finish time; each adds to the one before


def fastest_schedule(
    problem: Problem,
    evaluate: Evaluator,
    units: Units,
    guide: Callable[[Bool[np.ndarray, "units devices"]], Guide],
    schedule: Schedule,
) -> Placement:
    """The fastest of six list schedules: on all allowed devices and without CPUs, by each estimate of `VIEWS`.

    `guide` maps the mask of allowed devices to a guide. Raises ValueError if a unit is allowed on no device.
    """
    given = [instance(problem, units, allowed, guide(allowed)) for allowed in device_sets(problem, units)]
    rows = [schedule_units(each, view)[0] for each in given for view in VIEWS]
    return fastest(problem, [Placement(expand(units, device), schedule) for device in rows], evaluate)


def schedule_units(given: Instance, view: int = OWN_END) -> tuple[Int32[np.ndarray, " units"], int]:
    """The device of each unit and the length of the schedule in ns.

    A unit is placed on the device with the earliest estimated finish time: the start of its first op there plus the
    unit's work, plus the op's penalty `added_ns` for that device. That is the view `OWN_END`, as published. `MESSAGES`
    adds the channel time of the transfers to the unit, because others wait for these channels. `LOADS` also delays the
    start of the unit until all work of the units placed on the device before it could be done.
    """
    done = nothing_yet(given)
    _schedule(given, done, view)
    return done.device, int(done.end.max())


@no_type_check
@allocates_nothing
def _schedule(given, done, view):
    for op in given.sequence:
        leader = given.leader[op]
        device = place(given, done, op, place(given, done, leader, -1, view), view)
        stream, gap, start = _slot(given, done, op, device, ready_ns(given, done, op, device, True))
        take(done.stream, stream, gap, start, given.time_ns[op, device])
        done.end[op] = start + given.time_ns[op, device]


@no_type_check
@part_allocates_nothing
def place(given, done, op, beside, view):
    """The device of an op's unit.

    A unit without a device goes to `beside` if that is not -1 and has room, else to the best device.
    """
    unit = given.unit[op]
    if done.device[unit] == -1:
        joins = beside != -1 and fits(given, done, unit, beside)
        settle(given, done, unit, beside if joins else choose(given, done, op, view))
    return done.device[unit]


@no_type_check
@part_allocates_nothing
def fits(given, done, unit, device):
    """Whether a unit is allowed on a device and fits its memory."""
    return given.allowed[unit, device] and done.held[device] + given.held[unit] <= given.memory[device]


@no_type_check
@part_allocates_nothing
def settle(given, done, unit, device):
    """Gives a unit its device."""
    done.device[unit] = device
    done.held[device] += given.held[unit]
    done.committed[device] += given.work_ns[unit, device]


@no_type_check
@part_allocates_nothing
def choose(given, done, op, view):
    """The device for an op's unit: the allowed device with the earliest finish time.

    Devices with links to the inputs of the op go first, then devices with room.
    """
    unit = given.unit[op]
    best, best_lacks, best_end = -1, 0, 0
    ready_everywhere(given, done, op)
    for device in range(given.allowed.shape[1]):
        if not given.allowed[unit, device]:
            continue
        ready = done.ready[device]
        start = _slot(given, done, op, device, max(0, ready))[2]
        if view >= LOADS:
            start = max(start, done.committed[device])
        end = start + given.work_ns[unit, device] + given.added_ns[op, device]
        if view >= MESSAGES:
            end += _messages_ns(given, done, unit, device)
        lacks = 2 * (ready == -1) + (done.held[device] + given.held[unit] > given.memory[device])
        if best == -1 or lacks < best_lacks or (lacks == best_lacks and end < best_end):
            best, best_lacks, best_end = device, lacks, end
    return best


@no_type_check
@part_allocates_nothing
def _messages_ns(given, done, unit, device):
    """The channel time of all transfers that a unit on `device` would still cause from units that have a device."""
    total = 0
    for op in given.unit_ops[given.unit_ptr[unit] : given.unit_ptr[unit + 1]]:
        for edge in given.in_edges[given.in_ptr[op] : given.in_ptr[op + 1]]:
            output, there = given.edge_data[edge], done.device[given.unit[given.edge_src[edge]]]
            if (
                output == -1
                or there == -1
                or there == device
                or done.arrival[output, device] != -1
                or done.counted[output, device] == unit
            ):
                continue
            link = given.link[there, device]
            if link != -1:
                done.counted[output, device] = unit
                total += given.transfer_ns[output, given.rate[link]]
    return total


@no_type_check
@part_allocates_nothing
def _slot(given, done, op, device, ready):
    """The stream of a device on which an op can start first, its gap, and the start."""
    best_stream, best_gap, best_start = -1, -1, 0
    for stream in range(given.streams[device], given.streams[device + 1]):
        gap, start = earliest(done.stream, stream, ready, given.time_ns[op, device])
        if best_stream == -1 or start < best_start:
            best_stream, best_gap, best_start = stream, gap, start
    return best_stream, best_gap, best_start


@no_type_check
@part_allocates_nothing
def ready_ns(given, done, op, device, sends):
    """The arrival of an op's inputs on a device, -1 without a link.

    With `sends` it occupies the channels and ignores missing links.
    """
    ready = 0
    for position in range(given.in_ptr[op], given.in_ptr[op + 1]):
        edge = given.in_edges[position]
        src = given.edge_src[edge]
        there = done.device[given.unit[src]]
        time = _input_ns(given, done, given.edge_data[edge], there, device, max(0, done.end[src]), sends)
        if time == -1 and not sends:
            return -1
        ready = max(ready, time)
    return ready


@no_type_check
@part_allocates_nothing
def ready_everywhere(given, done, op):
    """Writes `ready_ns` for all allowed devices of the op's unit into `done.ready`."""
    ready = done.ready
    ready[:] = 0
    for position in range(given.in_ptr[op], given.in_ptr[op + 1]):
        edge = given.in_edges[position]
        src, output = given.edge_src[edge], given.edge_data[edge]
        there, end = done.device[given.unit[src]], max(0, done.end[src])
        for device in range(len(ready)):
            if given.allowed[given.unit[op], device] and ready[device] != -1:
                time = _input_ns(given, done, output, there, device, end, False)
                ready[device] = -1 if time == -1 else max(ready[device], time)


@no_type_check
@part_allocates_nothing
def _input_ns(given, done, output, there, device, end, sends):
    """The arrival on `device` of an output that is on device `there` at `end`; -1 without a link.

    The output -1 is a control edge, the device -1 means that the producer has no device yet.
    """
    if there == -1 or there == device:
        return end
    link = given.link[there, device]
    if link == -1:
        return -1
    if output == -1:
        return end + max(1, given.latency[link])
    if done.arrival[output, device] != -1:
        return done.arrival[output, device]
    time = _arrival(given, done, output, link, end, sends)
    if sends:
        done.arrival[output, device] = time
    return time


@no_type_check
@part_allocates_nothing
def _arrival(given, done, output, link, time, sends):
    """The arrival of an output that may leave at `time`, after the channel and the receive channel of its link."""
    duration = given.transfer_ns[output, given.rate[link]]
    for channel in (given.channel[link], given.receiver[link]):
        if channel != -1:
            gap, start = earliest(done.channel, channel, time, duration)
            if sends:
                take(done.channel, channel, gap, start, duration)
            time = start + duration
    return time + given.latency[link]
