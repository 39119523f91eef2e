"""The order in which a policy or a heuristic places units, computed on the op graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.problems import Problem
from gnnplace.schedules.paths import longest_paths
from gnnplace.units.units import Units


def decision_order(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """Units by the mean earliest start of their ops, weighted by the ops' times, then by number."""
    starts = unit_starts(problem, units)
    return np.argsort(starts.start_by_work / starts.work_ns, kind="stable").astype(np.int64)


class UnitStarts(NamedTuple):
    """Of each unit: its work on fastest devices, and the sum of its ops' earliest starts, each times the op's work.

    Their quotient is the mean start of the unit; sums over several units give the mean start of all of them.
    """

    work_ns: Float[np.ndarray, " units"]
    start_by_work: Float[np.ndarray, " units"]


def unit_starts(problem: Problem, units: Units) -> UnitStarts:
    """When the work of units can start.

    The earliest start of an op is its head: the longest path to it with fastest devices and free transfers. Contracting
    ops into units may create cycles, so the order comes from the op graph.
    """
    work = problem.time_ns.min(axis=1).astype(np.float64)
    head = longest_paths(problem.graph, problem.time_ns.min(axis=1)).head_ns * work
    start, total = (np.bincount(units.unit, weights=weights, minlength=units.num_units) for weights in (head, work))
    return UnitStarts(total, start)
