"""The input of list schedulers as arrays for compiled functions, and the state of a schedule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.baselines.scheduling.gaps import Gaps, free
from gnnplace.baselines.scheduling.sequence import Sequence
from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.schedules.ranks import compact
from gnnplace.units.units import Units, kept_bytes, persistent_bytes, work_ns


class Guide(NamedTuple):
    """The parts in which list schedulers differ: the order of ops, and a penalty on each op's finish time by device."""

    sequence: Sequence
    added_ns: Int64[np.ndarray, "ops devices"] | None = None


class Instance(NamedTuple):
    """The input of a schedule.

    The unit of op i goes with the unit of op `leader[i]` if it has no device yet when op i is scheduled.
    """

    sequence: Int64[np.ndarray, " ops"]
    leader: Int64[np.ndarray, " ops"]
    unit: Int32[np.ndarray, " ops"]
    unit_ops: Int64[np.ndarray, " ops"]  # the ops of unit u are unit_ops[unit_ptr[u]:unit_ptr[u + 1]]
    unit_ptr: Int64[np.ndarray, " units_plus_1"]
    allowed: Bool[np.ndarray, "units devices"]
    added_ns: Int64[np.ndarray, "ops devices"]
    work_ns: Int64[np.ndarray, "units devices"]
    held: Int64[np.ndarray, " units"]  # the bytes that a unit takes on its device
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
    streams: Int64[np.ndarray, " devices_plus_1"]  # device d has the streams of numbers streams[d]:streams[d+1]


class PartialSchedule(NamedTuple):
    """The state of a schedule; -1 means no device or no time yet."""

    device: Int32[np.ndarray, " units"]
    end: Int64[np.ndarray, " ops"]
    arrival: Int64[np.ndarray, "outputs devices"]
    # the last unit for which the transfer of the output to the device was counted
    counted: Int64[np.ndarray, "outputs devices"]
    held: Int64[np.ndarray, " devices"]
    committed: Int64[np.ndarray, " devices"]
    ready: Int64[np.ndarray, " devices"]  # arrival of the inputs of the op whose device is being chosen
    stream: Gaps
    channel: Gaps


def instance(
    problem: Problem, units: Units, allowed: Bool[np.ndarray, "units devices"], guide: Guide, kept: bool = False
) -> Instance:
    """The input of a schedule of `problem` in the order of `guide`; units may use the devices of the mask.

    A memory must hold the persistent bytes of its units; with `kept`, also the outputs that live for most of the step
    (`kept_bytes`).
    """
    graph, cluster = problem.graph, problem.cluster
    streams = np.concatenate([[0], np.cumsum(cluster.streams)])
    unit_ptr = np.concatenate([[0], np.cumsum(np.bincount(units.unit))])
    added_ns = np.zeros_like(problem.time_ns) if guide.added_ns is None else guide.added_ns
    columns = {
        "sequence": guide.sequence.op, "leader": guide.sequence.leader, "added_ns": added_ns,
        "unit": units.unit, "unit_ops": np.argsort(units.unit, kind="stable"), "unit_ptr": unit_ptr,
        "allowed": allowed, "work_ns": work_ns(problem, units),
        "held": (kept_bytes if kept else persistent_bytes)(graph, units), "memory": cluster.memory_bytes,
        "time_ns": problem.time_ns,
        "in_ptr": graph.in_ptr, "in_edges": graph.in_edges, "edge_src": graph.edge_src, "edge_data": graph.edge_data,
        "transfer_ns": problem.transfer_ns, "link": cluster.link_index, "rate": problem.link_rate,
        "latency": cluster.link_latency_ns, "channel": cluster.link_channel,
        "receiver": cluster.link_receive_channel, "streams": streams,
    }  # fmt: skip
    return Instance(**{name: compact(column, column.dtype.type) for name, column in columns.items()})


def nothing_yet(given: Instance) -> PartialSchedule:
    """The state of an empty schedule."""
    ops, (units, devices) = len(given.unit), given.allowed.shape
    return PartialSchedule(
        device=np.full(units, NONE, dtype=np.int32),
        end=np.full(ops, NONE, dtype=np.int64),
        arrival=np.full((len(given.transfer_ns), devices), NONE, dtype=np.int64),
        counted=np.full((len(given.transfer_ns), devices), NONE, dtype=np.int64),
        held=np.zeros(devices, dtype=np.int64),
        committed=np.zeros(devices, dtype=np.int64),
        ready=np.zeros(devices, dtype=np.int64),
        stream=free(int(given.streams[-1])),
        channel=free(1 + max(int(given.channel.max(initial=0)), int(given.receiver.max(initial=0)))),
    )
