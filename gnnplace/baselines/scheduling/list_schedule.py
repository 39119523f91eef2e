"""List scheduling of units on devices: op after op in a given sequence, with insertion, transfers and memory.

It estimates a schedule to choose devices by; what a placement takes is for an evaluator to say. Transfers occupy their channels
(none of them a stream: a device that copies by itself is taken to have an engine), an output is sent once to each device, and ops
without a device yet (and their outputs) don't hold anyone up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Int32

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.legal import device_sets
from gnnplace.baselines.scheduling.compiled import allocates_nothing
from gnnplace.baselines.scheduling.gaps import earliest, take
from gnnplace.baselines.scheduling.instance import Guide, Instance, instance, nothing_yet
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import Units, expand

VIEWS = OWN_END, MESSAGES, LOADS = 0, 1, 2  # what the choice of a unit's device looks at; each adds to those before it


def fastest_schedule(
    problem: Problem,
    evaluate: Evaluator,
    units: Units,
    guide: Callable[[Bool[np.ndarray, "units devices"]], Guide],
    schedule: Schedule,
) -> Placement:
    """The fastest of six list schedules: each under the guide for its legal devices (all, then without CPUs), by each of `VIEWS`.

    Raises ValueError where a unit may stand nowhere.
    """
    given = [instance(problem, units, legal, guide(legal)) for legal in device_sets(problem, units)]
    found = [schedule_units(each, view)[0] for each in given for view in VIEWS]
    return fastest(problem, [Placement(expand(units, device), schedule) for device in found], evaluate)


def schedule_units(given: Instance, view: int = OWN_END) -> tuple[Int32[np.ndarray, " units"], int]:
    """The device of each unit and the length of the schedule in ns.

    A unit goes where its work would end first, after its first op's start there; where devices are compared, what its first op adds on
    them counts. That is `OWN_END`, as published. With `MESSAGES` what the unit takes from other devices is added, since others wait for
    the channel meanwhile; with `LOADS` too, the unit starts after all the work that units chosen before it will do on the device.
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
@allocates_nothing
def place(given, done, op, beside, view):
    """The device of an op's unit; where it has none yet, `beside` if it fits there and that is no -1, else the op's own choice."""
    unit = given.unit[op]
    if done.device[unit] == -1:
        joins = beside != -1 and fits(given, done, unit, beside)
        settle(given, done, unit, beside if joins else choose(given, done, op, view))
    return done.device[unit]


@no_type_check
@allocates_nothing
def fits(given, done, unit, device):
    """Whether a unit may stand on a device and finds room there."""
    return given.legal[unit, device] and done.held[device] + given.persistent[unit] <= given.memory[device]


@no_type_check
@allocates_nothing
def settle(given, done, unit, device):
    done.device[unit] = device
    done.held[device] += given.persistent[unit]
    done.committed[device] += given.work_ns[unit, device]


@no_type_check
@allocates_nothing
def choose(given, done, op, view):
    """The device for an op's unit: legal, linked to its inputs and with room, as far as that may be; then by the earliest end."""
    unit = given.unit[op]
    best, best_lacks, best_end = -1, 0, 0
    ready_everywhere(given, done, op)
    for device in range(given.legal.shape[1]):
        if not given.legal[unit, device]:
            continue
        ready = done.ready[device]
        start = _slot(given, done, op, device, max(0, ready))[2]
        if view >= LOADS:
            start = max(start, done.committed[device])
        end = start + given.work_ns[unit, device] + given.added_ns[op, device]
        if view >= MESSAGES:
            end += _messages_ns(given, done, unit, device)
        lacks = 2 * (ready == -1) + (done.held[device] + given.persistent[unit] > given.memory[device])
        if best == -1 or lacks < best_lacks or (lacks == best_lacks and end < best_end):
            best, best_lacks, best_end = device, lacks, end
    return best


@no_type_check
@allocates_nothing
def _messages_ns(given, done, unit, device):
    """How long all that a unit takes from other devices, as far as it is known and not sent yet, occupies channels."""
    total = 0
    for op in given.unit_ops[given.unit_ptr[unit] : given.unit_ptr[unit + 1]]:
        for edge in given.in_edges[given.in_ptr[op] : given.in_ptr[op + 1]]:
            output, there = given.edge_data[edge], done.device[given.unit[given.edge_src[edge]]]
            if output == -1 or there == -1 or there == device or done.arrival[output, device] != -1 or done.asked[output, device] == unit:
                continue
            link = given.link[there, device]
            if link != -1:
                done.asked[output, device] = unit
                total += given.transfer_ns[output, given.rate[link]]
    return total


@no_type_check
@allocates_nothing
def _slot(given, done, op, device, ready):
    """The stream of a device on which an op can start first, the gap there, and the start."""
    best_stream, best_gap, best_start = -1, -1, 0
    for stream in range(given.streams[device], given.streams[device + 1]):
        gap, start = earliest(done.stream, stream, ready, given.time_ns[op, device])
        if best_stream == -1 or start < best_start:
            best_stream, best_gap, best_start = stream, gap, start
    return best_stream, best_gap, best_start


@no_type_check
@allocates_nothing
def ready_ns(given, done, op, device, sends):
    """When the inputs of an op are on a device, -1 without a link (0 then, where it `sends`: this also occupies the channels)."""
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
@allocates_nothing
def ready_everywhere(given, done, op):
    """`ready_ns` on all devices of the op's unit at once, into `done.ready`."""
    ready = done.ready
    ready[:] = 0
    for position in range(given.in_ptr[op], given.in_ptr[op + 1]):
        edge = given.in_edges[position]
        src, output = given.edge_src[edge], given.edge_data[edge]
        there, end = done.device[given.unit[src]], max(0, done.end[src])
        for device in range(len(ready)):
            if given.legal[given.unit[op], device] and ready[device] != -1:
                time = _input_ns(given, done, output, there, device, end, False)
                ready[device] = -1 if time == -1 else max(ready[device], time)


@no_type_check
@allocates_nothing
def _input_ns(given, done, output, there, device, end, sends):
    """When an output (-1: a control message) that a device (-1: not known yet) has at `end` is on another, -1 without a link."""
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
@allocates_nothing
def _arrival(given, done, output, link, time, sends):
    """When an output arrives that leaves from `time` on, over the channel of its link and, where there is one, that which receives."""
    duration = given.transfer_ns[output, given.rate[link]]
    for channel in (given.channel[link], given.receiver[link]):
        if channel != -1:
            gap, start = earliest(done.channel, channel, time, duration)
            if sends:
                take(done.channel, channel, gap, start, duration)
            time = start + duration
    return time + given.latency[link]
