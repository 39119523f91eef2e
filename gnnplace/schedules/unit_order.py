"""The order in which a policy or a heuristic places units, computed on the op graph."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.problems import Problem
from gnnplace.schedules.paths import longest_paths
from gnnplace.units.units import Units


def decision_order(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """Units by the mean earliest start of their ops, weighted by the ops' times, then by number.

    The earliest start of an op is its head: the longest path to it with fastest devices and free transfers. Contracting ops into units may
    create cycles, so the order comes from the op graph.
    """
    work = problem.time_ns.min(axis=1).astype(np.float64)
    head = longest_paths(problem.graph, problem.time_ns.min(axis=1)).head_ns * work
    start, total = (np.bincount(units.unit, weights=weights, minlength=units.num_units) for weights in (head, work))
    return np.argsort(start / total, kind="stable").astype(np.int64)
