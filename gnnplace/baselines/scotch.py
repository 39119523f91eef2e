"""Scotch: static mapping of the op graph onto the machine (Pellegrini and Roman, 1996), the baseline of Mirhoseini et
al. (2018).

The input is the compute time of ops, the bytes of edges, and the capacities of devices and links. The weight of a
device is its speed. The distance of two devices is the time of a byte on their link. *MinCut* is the same without CPUs.
A partitioner does not know the order of ops in time.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.balanced import balanced, mixed
from gnnplace.baselines.scotch_library import Weighted, mapped
from gnnplace.cluster import NO_LINK
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.adjacency import adjacency, whole
from gnnplace.units.units import Units, UnitsName, held_bytes, unit_edges, units, work_ns

TOTAL = 2.0**29  # Scotch sums weights, and weights times distances, in 32 bits
LARGEST_SPEED = 10**4
SHORTEST_DISTANCE, LARGEST_DISTANCE = 8, 1000


def scotch(
    problem: Problem,
    evaluate: Evaluator,
    *,
    units_name: UnitsName = "coarse",
    seeds: int = 8,
    schedule: Schedule = "critical-path",
) -> Placement:
    """The fastest of the mappings of seeds `0..seeds-1` onto all devices.

    Raises ValueError if a unit is allowed on no device, MissingScotchError if Scotch's library is not installed.
    """
    return _mapped(problem, evaluate, np.arange(problem.num_devices), units_name, seeds, schedule)


def min_cut(
    problem: Problem,
    evaluate: Evaluator,
    *,
    units_name: UnitsName = "coarse",
    seeds: int = 8,
    schedule: Schedule = "critical-path",
) -> Placement:
    """As `scotch` without CPUs, unless the machine has no other devices."""
    return _mapped(problem, evaluate, problem.cluster.accelerators, units_name, seeds, schedule)


def _mapped(
    problem: Problem,
    evaluate: Evaluator,
    devices: Int64[np.ndarray, " parts"],
    units_name: UnitsName,
    seeds: int,
    schedule: Schedule,
) -> Placement:
    grouping = units(problem.graph, units_name)

    def parts(of_bytes: float, seeds: int) -> list[Int64[np.ndarray, " units"]]:
        if len(devices) == 1 or grouping.num_units == 1:
            return [np.zeros(grouping.num_units, dtype=np.int64)]
        graph, machine = _graph(problem, grouping, devices, of_bytes), _machine(problem, grouping, devices, of_bytes)
        return [mapped(graph, machine, seed) for seed in range(seeds)]

    return balanced(problem, evaluate, grouping, devices, parts, seeds, schedule)


def _graph(problem: Problem, units: Units, devices: Int64[np.ndarray, " parts"], of_bytes: float) -> Weighted:
    """The graph of units.

    The weight of a unit mixes its mean time over devices with its bytes; the weight of an edge is its bytes.
    """
    edges = unit_edges(problem.graph, units)
    joined = adjacency(edges, units.num_units, edges.bytes.astype(np.float64))
    weight = mixed(work_ns(problem, units)[:, devices].mean(axis=1), held_bytes(problem.graph, units), of_bytes)
    return Weighted(
        joined.ptr, joined.neighbour, _whole(weight, TOTAL), _whole(joined.weight, TOTAL / LARGEST_DISTANCE)
    )


def _machine(problem: Problem, units: Units, devices: Int64[np.ndarray, " parts"], of_bytes: float) -> Weighted:
    """The graph of devices. The weight of a device mixes its speed with its memory.

    The distance of two devices is the time of a byte on the slower of their links.
    """
    count, cluster = len(devices), problem.cluster
    work = work_ns(problem, units)[:, devices].sum(axis=0).astype(np.float64)
    weight = mixed(work.min() / work, cluster.memory_bytes[devices].astype(np.float64), of_bytes)
    link = cluster.link_index[np.ix_(devices, devices)]
    per_byte = np.array([1 / link.bandwidth_bytes_per_s for link in cluster.links] or [1.0])
    apart = np.where(link == NO_LINK, per_byte.max(), per_byte[link])
    apart = np.maximum(apart, apart.T)[~np.eye(count, dtype=bool)]
    distance = np.clip(np.rint(SHORTEST_DISTANCE * apart / apart.min()), 1, LARGEST_DISTANCE).astype(np.int64)
    neighbour = np.tile(np.arange(count), (count, 1))[~np.eye(count, dtype=bool)]
    return Weighted(
        np.arange(count + 1) * (count - 1),
        neighbour,
        np.rint(np.clip(LARGEST_SPEED * weight / weight.max(), 1, None)).astype(np.int64),
        distance,
    )


def _whole(weight: Float[np.ndarray, " weights"], total: float) -> Int64[np.ndarray, " weights"]:
    """Integer weights of at least 1 whose sum is about `total` at most."""
    return whole(weight, total * float(weight.max(initial=1.0)) / max(1.0, float(weight.sum())))
