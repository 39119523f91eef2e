"""The time of fused ops (docs/execution-model.md#times-of-fused-ops), under any cost model.

The time of an op on a device has three parts: the launch, the roofline's arithmetic and memory traffic (which run side
by side), and a rest that the roofline does not explain. A fused group launches once. The other parts of its ops add up,
without the traffic that fusion saves.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.costs.roofline import arithmetic_ns
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import Problem, duration_ns


class Parts(NamedTuple):
    """The parts of each op's time: `launch + beyond + max(arithmetic, min(traffic, most_traffic))`.

    `arithmetic` is at least 1 ns. `traffic` follows from the bytes that an op moves, of which fusion saves some.
    """

    launch_ns: Int64[np.ndarray, "ops devices"]
    beyond_ns: Int64[np.ndarray, "ops devices"]  # not explained by the roofline
    arithmetic_ns: Int64[np.ndarray, "ops devices"]
    most_traffic_ns: Int64[np.ndarray, "ops devices"]
    bytes_per_s: list[int]  # of each device


class FusedGroups(NamedTuple):
    """The groups of a fusion, numbered by their leaders: the group of each op, and whether it has several ops."""

    group: Int64[np.ndarray, " ops"]
    fused: Bool[np.ndarray, " ops"]

    @property
    def number(self) -> int:
        return int(self.group.max()) + 1


_parts: WeakKeyDictionary[Problem, tuple[Parts, Parts | None]] = WeakKeyDictionary()


def groups(leader: Int32[np.ndarray, " ops"]) -> FusedGroups:
    """The groups of a fusion, given as the leader of each op's group."""
    number = np.cumsum(leader == np.arange(len(leader))) - 1
    group = number[leader]
    return FusedGroups(group, (np.bincount(group) > 1)[group])


def fused_ns(
    problem: Problem, groups: FusedGroups, moved: Int64[np.ndarray, " ops"]
) -> tuple[Int64[np.ndarray, "groups devices"], Int64[np.ndarray, "groups devices"] | None]:
    """The time of each group on every device, alone and on a contended memory (None if both are the same).

    `moved` is the result of `moved_bytes`.
    """
    alone, contended = parts(problem)
    alone_ns = _fused_ns(problem.time_ns, alone, groups, moved)
    if contended is None or problem.contended_ns is None:
        return alone_ns, None
    return alone_ns, np.maximum(alone_ns, _fused_ns(problem.contended_ns, contended, groups, moved))


def moved_bytes(graph: ComputationGraph, groups: FusedGroups) -> Int64[np.ndarray, " ops"]:
    """The memory traffic of each op within its group; 0 for ops without a kernel.

    docs/execution-model.md#traffic-of-fused-ops
    """
    moved = np.where(graph.kernel, graph.effective_bytes_accessed, 0)
    data = np.flatnonzero(graph.edge_data != NONE)
    kernel, output, reader = graph.kernel, graph.edge_data[data], graph.edge_dst[data].astype(np.int64)
    seen = seen_through(graph, groups)
    reads = groups.fused[reader] & kernel[reader]
    # inputs computed within the group are not read from memory
    computed = seen[output] != NONE
    inside = reads & computed & (groups.group[graph.output_op[seen[output]]] == groups.group[reader])
    np.subtract.at(moved, reader[inside], graph.output_bytes[output[inside]])
    # a group reads each other input once, for the first op that needs it
    outside = np.flatnonzero(reads & ~inside)
    outside = outside[np.argsort(reader[outside], kind="stable")]
    first = np.unique(output[outside] * groups.number + groups.group[reader[outside]], return_index=True)[1]
    repeated = np.delete(outside, first)
    np.subtract.at(moved, reader[repeated], graph.output_bytes[output[repeated]])
    # outputs that stay within the group are not written
    written = np.zeros(len(seen), dtype=bool)
    written[seen[leaving(graph, groups) & (seen != NONE)]] = True
    stays = ~written & (groups.fused & kernel)[graph.output_op]
    np.subtract.at(moved, graph.output_op[stays], graph.output_bytes[stays])
    return np.maximum(0, moved)


def leaving(graph: ComputationGraph, groups: FusedGroups) -> Bool[np.ndarray, " outputs"]:
    """True for outputs that leave their group: results, outputs that another group reads, outputs without a reader."""
    data = np.flatnonzero(graph.edge_data != NONE)
    read = np.zeros(len(graph.output_bytes), dtype=bool)
    read[graph.edge_data[data]] = True
    leaves = graph.output_is_result | ~read
    leaves[graph.edge_data[data[groups.group[graph.edge_src[data]] != groups.group[graph.edge_dst[data]]]]] = True
    return leaves


def seen_through(graph: ComputationGraph, groups: FusedGroups) -> Int64[np.ndarray, " outputs"]:
    """The output whose data each output shows.

    That is the output itself, except for views by an op without a kernel in a group: these show what the viewed output
    shows. `NONE` if an op without a kernel in a group makes the output and it is no alias.
    """
    views = ~graph.kernel[graph.output_op] & groups.fused[graph.output_op]
    seen = np.arange(len(graph.output_bytes))
    seen[views] = graph.output_alias[views]
    while True:
        further = np.flatnonzero(seen != NONE)
        further = further[seen[seen[further]] != seen[further]]
        further = further[groups.group[graph.output_op[seen[further]]] == groups.group[graph.output_op[further]]]
        if not len(further):
            return seen
        seen[further] = seen[seen[further]]


def parts(problem: Problem) -> tuple[Parts, Parts | None]:
    """The parts of times alone and of contended times (None if both are the same), kept while the problem lives."""
    if problem not in _parts:
        devices = problem.cluster.devices
        rates = [device.memory_bytes_per_s for device in devices]
        slow = [device.contended_memory_bytes_per_s or rate for device, rate in zip(devices, rates, strict=True)]
        alone = _split(problem, problem.time_ns, rates)
        _parts[problem] = alone, None if problem.contended_ns is None else _split(problem, problem.contended_ns, slow)
    return _parts[problem]


def _split(problem: Problem, time_ns: Int64[np.ndarray, "ops devices"], bytes_per_s: list[int]) -> Parts:
    """Splits times into their parts."""
    graph, devices = problem.graph, problem.cluster.devices
    start_ns = np.where(
        graph.kernel[:, None], [device.launch_ns for device in devices], [device.dispatch_ns for device in devices]
    )
    launch_ns = np.minimum(start_ns, time_ns - 1)
    rest_ns = time_ns - launch_ns
    computing = np.stack([np.where(graph.kernel, arithmetic_ns(graph, device), 0) for device in devices], axis=1)
    arithmetic = np.minimum(np.maximum(1, computing), rest_ns)
    traffic = np.minimum(_traffic_ns(np.where(graph.kernel, graph.effective_bytes_accessed, 0), bytes_per_s), rest_ns)
    return Parts(launch_ns, rest_ns - np.maximum(arithmetic, traffic), arithmetic, rest_ns, bytes_per_s)


def _traffic_ns(moved: Int64[np.ndarray, " ops"], bytes_per_s: list[int]) -> Int64[np.ndarray, "ops devices"]:
    distinct = {rate: duration_ns(moved, rate) for rate in set(bytes_per_s)}
    return np.stack([distinct[rate] for rate in bytes_per_s], axis=1)


def _fused_ns(
    time_ns: Int64[np.ndarray, "ops devices"], parts: Parts, groups: FusedGroups, moved: Int64[np.ndarray, " ops"]
) -> Int64[np.ndarray, "groups devices"]:
    """The time of each group; a group of one op keeps the op's time."""
    group_ns = np.empty((groups.number, time_ns.shape[1]), dtype=np.int64)
    group_ns[groups.group[~groups.fused]] = time_ns[~groups.fused]
    members = np.flatnonzero(groups.fused)
    if len(members):
        members = members[np.argsort(groups.group[members], kind="stable")]
        labels, start = np.unique(groups.group[members], return_index=True)
        traffic = np.minimum(_traffic_ns(moved[members], parts.bytes_per_s), parts.most_traffic_ns[members])
        computing, moving, beyond = (
            np.add.reduceat(column, start)
            for column in (parts.arithmetic_ns[members], traffic, parts.beyond_ns[members])
        )
        group_ns[labels] = np.maximum.reduceat(parts.launch_ns[members], start) + beyond + np.maximum(computing, moving)
    return group_ns
