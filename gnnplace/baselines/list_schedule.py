"""List scheduling of units on devices: op after op in a given sequence, with insertion, transfers and memory.

It estimates a schedule to choose devices by; what a placement takes is for an evaluator to say. Transfers occupy their channels
(none of them a stream: a device that copies by itself is taken to have an engine), an output is sent once to each device, and ops
without a device yet (and their outputs) don't hold anyone up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.baselines.compiled import allocates_nothing
from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.gaps import Gaps, earliest, free, take
from gnnplace.baselines.legal import device_sets
from gnnplace.baselines.sequence import Sequence
from gnnplace.graph import NONE
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.schedule import compact
from gnnplace.transforms.units import Units, expand, persistent_bytes, work_ns


class Guide(NamedTuple):
    """What tells list schedulers apart: the order of ops, and what an op adds to its end on each device where devices are compared."""

    sequence: Sequence
    added_ns: Int64[np.ndarray, "ops devices"] | None = None


class Instance(NamedTuple):
    """The constants. `leader[i]` is the op whose unit the unit of op i follows, where it has no device of its own yet."""

    sequence: Int64[np.ndarray, " ops"]
    leader: Int64[np.ndarray, " ops"]
    unit: Int32[np.ndarray, " ops"]
    legal: Bool[np.ndarray, "units devices"]
    added_ns: Int64[np.ndarray, "ops devices"]
    work_ns: Int64[np.ndarray, "units devices"]
    persistent: Int64[np.ndarray, " units"]
    memory: Int64[np.ndarray, " devices"]
    time_ns: Int64[np.ndarray, "ops devices"]
    in_ptr: Int64[np.ndarray, " ops_plus_1"]
    in_edges: Int64[np.ndarray, " edges"]
    edge_src: Int32[np.ndarray, " edges"]
    edge_data: Int64[np.ndarray, " edges"]
    transfer_ns: Int64[np.ndarray, "outputs rates"]
    link: Int32[np.ndarray, "devices devices"]
    rate: Int32[np.ndarray, " links"]
    latency: Int64[np.ndarray, " links"]
    channel: Int32[np.ndarray, " links"]
    receiver: Int32[np.ndarray, " links"]  # the second channel that a transfer occupies, or -1
    streams: Int64[np.ndarray, " devices_plus_1"]  # those of device d are numbers streams[d]:streams[d+1]


class Progress(NamedTuple):
    """What is scheduled so far; -1 is nowhere or not yet."""

    device: Int32[np.ndarray, " units"]
    end: Int64[np.ndarray, " ops"]
    arrival: Int64[np.ndarray, "outputs devices"]
    held: Int64[np.ndarray, " devices"]
    committed: Int64[np.ndarray, " devices"]
    stream: Gaps
    channel: Gaps


def fastest_schedule(
    problem: Problem,
    evaluate: Evaluator,
    units: Units,
    guide: Callable[[Bool[np.ndarray, "units devices"]], Guide],
    schedule: Schedule,
) -> Placement:
    """The fastest of four list schedules: each under the guide for its legal devices (all, then without CPUs), without and with `balance`.

    Raises ValueError where a unit may stand nowhere.
    """
    given = [instance(problem, units, legal, guide(legal)) for legal in device_sets(problem, units)]
    found = [schedule_units(each, balance)[0] for each in given for balance in (False, True)]
    return fastest(problem, [Placement(expand(units, device), schedule) for device in found], evaluate)


def instance(problem: Problem, units: Units, legal: Bool[np.ndarray, "units devices"], guide: Guide) -> Instance:
    """The constants of a problem whose ops are scheduled in the order of a guide."""
    graph, cluster = problem.graph, problem.cluster
    streams = np.concatenate([[0], np.cumsum(cluster.streams)])
    added_ns = np.zeros_like(problem.time_ns) if guide.added_ns is None else guide.added_ns
    columns = {
        "sequence": guide.sequence.op, "leader": guide.sequence.leader, "added_ns": added_ns,
        "unit": units.unit, "legal": legal, "work_ns": work_ns(problem, units),
        "persistent": persistent_bytes(graph, units), "memory": cluster.memory_bytes, "time_ns": problem.time_ns,
        "in_ptr": graph.in_ptr, "in_edges": graph.in_edges, "edge_src": graph.edge_src, "edge_data": graph.edge_data,
        "transfer_ns": problem.transfer_ns, "link": cluster.link_index, "rate": problem.link_rate,
        "latency": cluster.link_latency_ns, "channel": cluster.link_channel,
        "receiver": cluster.link_receive_channel, "streams": streams,
    }  # fmt: skip
    return Instance(**{name: compact(column, column.dtype.type) for name, column in columns.items()})


def schedule_units(given: Instance, balance: bool) -> tuple[Int32[np.ndarray, " units"], int]:
    """The device of each unit and the length of the schedule in ns.

    A unit goes where its work would end first: after its first op's start there and, with `balance`, after all the work that
    units chosen before it will do there. Where devices are compared, what its first op adds on them counts.
    """
    done = nothing_yet(given)
    _schedule(given, done, balance)
    return done.device, int(done.end.max())


def nothing_yet(given: Instance) -> Progress:
    """The progress of a schedule in which nothing is placed."""
    ops, (units, devices) = len(given.unit), given.legal.shape
    return Progress(
        device=np.full(units, NONE, dtype=np.int32),
        end=np.full(ops, NONE, dtype=np.int64),
        arrival=np.full((len(given.transfer_ns), devices), NONE, dtype=np.int64),
        held=np.zeros(devices, dtype=np.int64),
        committed=np.zeros(devices, dtype=np.int64),
        stream=free(int(given.streams[-1])),
        channel=free(1 + max(int(given.channel.max(initial=0)), int(given.receiver.max(initial=0)))),
    )


@no_type_check
@allocates_nothing
def _schedule(given, done, balance):
    for op in given.sequence:
        leader = given.leader[op]
        device = place(given, done, op, place(given, done, leader, -1, balance), balance)
        stream, gap, start = _slot(given, done, op, device, ready_ns(given, done, op, device, True))
        take(done.stream, stream, gap, start, given.time_ns[op, device])
        done.end[op] = start + given.time_ns[op, device]


@no_type_check
@allocates_nothing
def place(given, done, op, beside, balance):
    """The device of an op's unit; where it has none yet, `beside` if it fits there and that is no -1, else the op's own choice."""
    unit = given.unit[op]
    if done.device[unit] == -1:
        joins = beside != -1 and fits(given, done, unit, beside)
        settle(given, done, unit, beside if joins else choose(given, done, op, balance))
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
def choose(given, done, op, balance):
    """The device for an op's unit: legal, linked to its inputs and with room, as far as that may be; then by the earliest end."""
    unit = given.unit[op]
    best, best_lacks, best_end = -1, 0, 0
    for device in range(given.legal.shape[1]):
        if not given.legal[unit, device]:
            continue
        ready = ready_ns(given, done, op, device, False)
        start = _slot(given, done, op, device, max(0, ready))[2]
        if balance:
            start = max(start, done.committed[device])
        end = start + given.work_ns[unit, device] + given.added_ns[op, device]
        lacks = 2 * (ready == -1) + (done.held[device] + given.persistent[unit] > given.memory[device])
        if best == -1 or lacks < best_lacks or (lacks == best_lacks and end < best_end):
            best, best_lacks, best_end = device, lacks, end
    return best


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
        src, output = given.edge_src[edge], given.edge_data[edge]
        there = done.device[given.unit[src]]
        time = max(0, done.end[src])
        if there != -1 and there != device:
            link = given.link[there, device]
            if link == -1:
                if sends:
                    continue
                return -1
            if output == -1:
                time += max(1, given.latency[link])
            elif done.arrival[output, device] != -1:
                time = done.arrival[output, device]
            else:
                time = _arrival(given, done, output, link, time, sends)
                if sends:
                    done.arrival[output, device] = time
        ready = max(ready, time)
    return ready


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
