"""Problems of a few ops, and what the earliest-first scheduler makes of them."""

from __future__ import annotations

import numpy as np

from gnnplace.baselines.scheduling.earliest_first import schedule_earliest_first
from gnnplace.baselines.scheduling.instance import Guide, instance
from gnnplace.baselines.scheduling.ranks import upward_rank_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.cluster import Cluster
from gnnplace.costs.roofline import problem
from gnnplace.graph import NONE, ComputationGraph, Op
from gnnplace.problems import Problem
from gnnplace.units.units import allowed, units


def posed(ops: list[Op], edges: list[tuple[int, int, int]], machine: Cluster) -> Problem:
    return problem(ComputationGraph.from_ops("g", ops, edges), machine)


def schedule(given: Problem, favourite: dict[int, int] | None = None) -> tuple[list[int], int]:
    """Devices and length, with favourite children if any."""
    made = units(given.graph, "ops")
    child = np.full(given.num_ops, NONE, dtype=np.int64)
    for parent, own in (favourite or {}).items():
        child[parent] = own
    guide = Guide(sequence(given.graph, upward_rank_ns(given)))
    device, length = schedule_earliest_first(given.graph, instance(given, made, allowed(given, made), guide), child)
    return device[made.unit].tolist(), length
