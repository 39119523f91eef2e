"""METIS: one part for each accelerator, with balanced work and the least transfer time between parts (Karypis and Kumar, 1998).

A partitioner does not know the order of ops in time. The evaluator picks the best of several seeds, which makes up for little of that.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np
import pymetis
from jaxtyping import Int64

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.legal import legalised, mean_transfer_ns
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.adjacency import adjacency, whole
from gnnplace.units.units import Units, UnitsName, expand, unit_edges, units, work_ns

LARGEST_WEIGHT = 1e6  # METIS adds weights up in 32 or 64 bits, as it was built
_one_at_a_time = Lock()


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
    if len(devices) == 1 or units.num_units == 1:
        return [np.zeros(units.num_units, dtype=np.int64)]
    work = work_ns(problem, units)[:, devices]
    speed = work.sum(axis=0).min() / work.sum(axis=0)
    edges = unit_edges(problem.graph, units)
    joined = adjacency(edges, units.num_units, mean_transfer_ns(problem, devices, edges.bytes))
    with _one_at_a_time, _silenced():
        parts = [
            pymetis.part_graph(
                len(devices),
                pymetis.CSRAdjacency(joined.ptr.tolist(), joined.neighbour.tolist()),
                vweights=whole(work.mean(axis=1), LARGEST_WEIGHT).tolist(),
                eweights=whole(joined.weight, LARGEST_WEIGHT).tolist(),
                tpwgts=(speed / speed.sum()).tolist(),
                options=pymetis.Options(seed=seed),
            ).vertex_part
            for seed in range(seeds)
        ]
    return [np.array(part, dtype=np.int64) for part in parts]


@contextmanager
def _silenced() -> Iterator[None]:
    """Silences METIS, which prints a warning to the standard output where there are more parts than units of work."""
    libc, standard = ctypes.CDLL(None), 1
    sys.stdout.flush()
    libc.fflush(None)
    kept, sink = os.dup(standard), os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, standard)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, standard)
        os.close(kept)
        os.close(sink)
