"""Longest paths through the op graph, to the start of each op and from its start to the end."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.compiled import kernel
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.units.units import Units


class Paths(NamedTuple):
    """Lengths of the longest paths without transfers.

    `head_ns` ends at the start of the op. `tail_ns` begins there and includes the op.
    """

    head_ns: Int64[np.ndarray, " ops"]
    tail_ns: Int64[np.ndarray, " ops"]

    @property
    def critical_path_ns(self) -> int:
        """The length of the critical path."""
        return int((self.head_ns + self.tail_ns).max())


def longest_paths(graph: ComputationGraph, time_ns: Int64[np.ndarray, " ops"]) -> Paths:
    """The longest paths if op i takes `time_ns[i]` and transfers take no time."""
    return Paths(*_longest_paths(graph.order, graph.out_ptr, graph.edge_dst, np.ascontiguousarray(time_ns)))


@kernel
@no_type_check
def _longest_paths(order, out_ptr, edge_dst, time_ns):
    head = np.zeros(len(order), np.int64)
    tail = time_ns.copy()
    for op in order:
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            head[edge_dst[edge]] = max(head[edge_dst[edge]], head[op] + time_ns[op])
    for op in order[::-1]:
        longest = 0
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            longest = max(longest, tail[edge_dst[edge]])
        tail[op] = time_ns[op] + longest
    return head, tail


def decision_order(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """Units by the mean earliest start of their ops, weighted by the ops' times, then by number."""
    starts = unit_starts(problem, units)
    return np.argsort(starts.start_by_work / starts.work_ns, kind="stable").astype(np.int64)


class UnitStarts(NamedTuple):
    """The work of each unit on fastest devices, and the sum of its ops' earliest starts, each times the op's work.

    Their quotient is the mean start of the unit. Sums over several units give the mean start of all of them.
    """

    work_ns: Float[np.ndarray, " units"]
    start_by_work: Float[np.ndarray, " units"]


def unit_starts(problem: Problem, units: Units) -> UnitStarts:
    """The earliest starts of the work of units.

    The earliest start of an op is its head: the longest path to it with fastest devices and free transfers. Contracting
    ops into units may create cycles, so the order comes from the op graph.
    """
    work = problem.time_ns.min(axis=1).astype(np.float64)
    head = longest_paths(problem.graph, problem.time_ns.min(axis=1)).head_ns * work
    start, total = (np.bincount(units.unit, weights=weights, minlength=units.num_units) for weights in (head, work))
    return UnitStarts(total, start)
