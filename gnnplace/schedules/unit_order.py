"""The order in which a policy or a heuristic decides units, computed on the op graph."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.problems import Problem
from gnnplace.schedules.paths import longest_paths
from gnnplace.units.units import Units


def decision_order(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """Units by the mean time at which their work could start at the earliest (heads of the longest paths), then by number.

    Contracting ops into units may make cycles, so the order comes from the op graph.
    """
    work = problem.time_ns.min(axis=1).astype(np.float64)
    head = longest_paths(problem.graph, problem.time_ns.min(axis=1)).head_ns * work
    start, total = (np.bincount(units.unit, weights=weights, minlength=units.num_units) for weights in (head, work))
    return np.argsort(start / total, kind="stable").astype(np.int64)
