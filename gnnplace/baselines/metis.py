"""METIS (Karypis and Kumar, 1998): a part for each accelerator, with balanced work and little transfer time.

A partitioner does not know the order of ops in time. The evaluator picks the best of several seeds, which helps little.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.balanced import balanced, mixed
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.adjacency import adjacency, mean_transfer_ns
from gnnplace.units.partition import partition
from gnnplace.units.units import Units, UnitsName, held_bytes, unit_edges, units, work_ns


def metis(
    problem: Problem,
    evaluate: Evaluator,
    *,
    units_name: UnitsName = "coarse",
    seeds: int = 8,
    schedule: Schedule = "critical-path",
) -> Placement:
    """The fastest of the partitions of seeds `0..seeds-1` that fits.

    Parts balance work; if none fits, they balance bytes more and more, because the library balances one weight only.
    Raises ValueError if a unit is allowed on no device.
    """
    grouping = units(problem.graph, units_name)
    devices = problem.cluster.accelerators
    return balanced(
        problem, evaluate, grouping, devices, partial(_partitions, problem, grouping, devices), seeds, schedule
    )


def _partitions(
    problem: Problem, units: Units, devices: Int64[np.ndarray, " parts"], of_bytes: float, seeds: int
) -> list[Int64[np.ndarray, " units"]]:
    """The part of each unit, for each seed.

    The share `of_bytes` of the weights and their targets is bytes and memory, the rest work and speed.
    """
    work = work_ns(problem, units)[:, devices]
    speed, memory = work.sum(axis=0).min() / work.sum(axis=0), problem.cluster.memory_bytes[devices].astype(np.float64)
    edges = unit_edges(problem.graph, units)
    joined = adjacency(edges, units.num_units, mean_transfer_ns(problem, devices, edges.bytes))
    weight = mixed(work.mean(axis=1), held_bytes(problem.graph, units), of_bytes)
    target = mixed(speed / speed.sum(), memory, of_bytes)
    return [partition(joined, weight, target / target.sum(), seed) for seed in range(seeds)]
