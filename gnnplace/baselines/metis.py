"""METIS: one part for each accelerator, with balanced work and the least transfer time between parts (Karypis and Kumar, 1998).

A partitioner does not know the order of ops in time. The evaluator picks the best of several seeds, which makes up for little of that.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.legal import legalised
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.adjacency import adjacency
from gnnplace.units.partition import partition
from gnnplace.units.transfers import mean_transfer_ns
from gnnplace.units.units import Units, UnitsName, expand, unit_edges, units, work_ns


def metis(
    problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "coarse", seeds: int = 8, schedule: Schedule = "critical-path"
) -> Placement:
    """The fastest of the partitions of seeds `0..seeds-1`. Raises ValueError where a unit is allowed on no device."""
    made = units(problem.graph, units_name)
    devices = problem.cluster.accelerators
    wanted = [devices[part] for part in _partitions(problem, made, devices, seeds)]
    return fastest(problem, [Placement(expand(made, legalised(problem, made, unit)), schedule) for unit in wanted], evaluate)


def _partitions(problem: Problem, units: Units, devices: Int64[np.ndarray, " parts"], seeds: int) -> list[Int64[np.ndarray, " units"]]:
    """The part of each unit, for each seed. The work of a part is proportional to the speed of its device."""
    work = work_ns(problem, units)[:, devices]
    speed = work.sum(axis=0).min() / work.sum(axis=0)
    edges = unit_edges(problem.graph, units)
    joined = adjacency(edges, units.num_units, mean_transfer_ns(problem, devices, edges.bytes))
    return [partition(joined, work.mean(axis=1), speed / speed.sum(), seed) for seed in range(seeds)]
