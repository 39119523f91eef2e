"""The relaxation of a problem for lower bounds: equal devices form a class, and each pair of classes has its best link.

Every feasible placement of the problem is a placement of the relaxed problem and is no slower there. So a lower bound
of the relaxed problem is one of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.cluster import NO_CHANNEL
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import MAX_STEP_NS, Problem
from gnnplace.units.units import Units, persistent_bytes, units

NEVER = MAX_STEP_NS  # longer than any step: the time on a forbidden device, and of a transfer without a link


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Classes of devices with the same times, the same allowed ops, equal memory and equally many streams.

    `time_ns` is `NEVER` if no device of the class allows the op and has the memory; an op that fits nowhere keeps its
    times. `held_bytes` is the memory that an op certainly holds at the end of the step: its persistent bytes and its
    results, except aliases. `by_way_ns[e]` is the least delay of edge e to any other device if other ops may carry its
    data there, by way of other devices or in parts (as sums of gradients do); `NONE` for an edge without such ops.
    """

    problem: Problem
    units: Units
    class_of: Int32[np.ndarray, " devices"]
    time_ns: Int64[np.ndarray, "ops classes"]
    held_bytes: Int64[np.ndarray, " ops"]
    streams: Int64[np.ndarray, " classes"]
    memory_bytes: Int64[np.ndarray, " classes"]
    num_devices: Int64[np.ndarray, " classes"]
    by_way_ns: Int64[np.ndarray, " edges"] | None = None

    @property
    def graph(self) -> ComputationGraph:
        return self.problem.graph

    @property
    def num_classes(self) -> int:
        return len(self.streams)

    @property
    def fastest_ns(self) -> Int64[np.ndarray, " ops"]:
        return self.time_ns.min(axis=1)

    @cached_property
    def delay_ns(self) -> Int64[np.ndarray, "edges classes classes"]:
        """The least delay of an edge from a device of class a to another device of class b; `NEVER` without a link."""
        graph, cluster, classes = self.graph, self.problem.cluster, self.num_classes
        delay = np.full((graph.num_edges, classes, classes), NEVER, dtype=np.int64)
        place = {name: int(self.class_of[d]) for d, name in enumerate(cluster.device_names)}
        hops = 1 + (cluster.link_receive_channel != NO_CHANNEL)
        kinds = {
            (place[link.src], place[link.dst], int(self.problem.link_rate[number]), int(hops[number]), link.latency_ns)
            for number, link in enumerate(cluster.links)
        }
        data = graph.edge_data != NONE
        for a, b, rate, hop, latency in sorted(kinds):
            edge_ns = np.full(graph.num_edges, max(1, latency), dtype=np.int64)
            edge_ns[data] = hop * self.problem.transfer_ns[graph.edge_data[data], rate] + latency
            delay[:, a, b] = np.minimum(delay[:, a, b], edge_ns)
        if self.by_way_ns is not None:
            delay = np.where((self.by_way_ns == NONE)[:, None, None], delay, self.by_way_ns[:, None, None])
        delay[self.units.unit[graph.edge_src] == self.units.unit[graph.edge_dst]] = NEVER
        return delay


def relaxed(problem: Problem, most_classes: int) -> Relaxed:
    """The relaxed problem.

    If it would have more than `most_classes` classes, it has one class with the best values of all devices.
    """
    closure = units(problem.graph, "ops")
    needed = needed_bytes(problem.graph, closure)
    return relaxed_by(problem, most_classes, closure, needed, held_bytes(problem.graph))


def relaxed_by(
    problem: Problem,
    most_classes: int,
    closure: Units,
    needed: Int64[np.ndarray, " ops"],
    held: Int64[np.ndarray, " ops"],
    by_way_ns: Int64[np.ndarray, " edges"] | None = None,
) -> Relaxed:
    """The relaxed problem, whose ops need these bytes on their devices while they run, and hold these at the end."""
    legal = _legal(problem, closure, needed)
    time_ns = np.where(legal, problem.time_ns, NEVER)
    streams, memory = problem.cluster.streams, problem.cluster.memory_bytes
    class_of = _classes(time_ns, np.stack([streams, memory]))
    if class_of.max() >= most_classes:
        class_of = np.zeros_like(class_of)
    members = [class_of == number for number in range(class_of.max() + 1)]
    return Relaxed(
        problem, closure, class_of, np.stack([time_ns[:, rows].min(axis=1) for rows in members], axis=1), held,
        np.array([streams[rows].max() for rows in members]), np.array([memory[rows].max() for rows in members]),
        np.array([rows.sum() for rows in members]), by_way_ns,
    )  # fmt: skip


def _classes(
    time_ns: Int64[np.ndarray, "ops devices"], other: Int64[np.ndarray, "columns devices"]
) -> Int32[np.ndarray, " devices"]:
    """A class number for each device: equal columns get the same number, in order of first use."""
    columns = [time_ns[:, d].tobytes() + other[:, d].tobytes() for d in range(time_ns.shape[1])]
    number: Mapping[bytes, int] = {column: index for index, column in enumerate(dict.fromkeys(columns))}
    return np.array([number[column] for column in columns], dtype=np.int32)


def _legal(problem: Problem, units: Units, needed: Int64[np.ndarray, " ops"]) -> Bool[np.ndarray, "ops devices"]:
    """True if an op's whole unit is allowed and fits. A unit that fits nowhere counts as allowed everywhere."""
    memory = problem.cluster.memory_bytes
    possible = problem.allowed & (needed[:, None] <= memory)
    forbidden = np.zeros((units.num_units, problem.num_devices), dtype=np.int64)
    np.add.at(forbidden, units.unit, ~possible)
    legal = forbidden == 0
    return (legal | ~legal.any(axis=1, keepdims=True))[units.unit]


def held_bytes(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """Persistent bytes and results of each op.

    A device holds all of its results at once when the last op that produces one starts.
    """
    results = graph.output_is_result & (graph.output_alias == NONE)
    held = graph.persistent_bytes.copy()
    np.add.at(held, graph.output_op[results], graph.output_bytes[results])
    return held


def needed_bytes(graph: ComputationGraph, units: Units) -> Int64[np.ndarray, " ops"]:
    """The least bytes that the device of an op holds while the op runs.

    These are the persistent bytes of its unit, its workspace, its outputs and one buffer for each root that it reads. A
    received buffer has the size of the largest output of its root that is sent, so it is at least as large as the
    smallest output of the root.
    """
    needed = persistent_bytes(graph, units)[units.unit] + graph.workspace_bytes
    owns_buffer = graph.output_alias == NONE
    np.add.at(needed, graph.output_op[owns_buffer], graph.output_bytes[owns_buffer])
    least = graph.output_bytes.copy()
    np.minimum.at(least, graph.output_root, graph.output_bytes)
    data = graph.edge_data != NONE
    read = np.unique(np.stack([graph.edge_dst[data], graph.output_root[graph.edge_data[data]]]), axis=1)
    np.add.at(needed, read[0], least[read[1]])
    return needed
