"""Brings variables, constants and views home: to a device that computes with them.

They take 1 ns on any device, and a transfer from an idle device may hide behind other work. So a search gains a
nanosecond for each one that it puts where nothing computes with it. A runtime pays for each with a copy and a
synchronisation. Only a full memory is worth that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.baselines.searching.budget import Budget
from gnnplace.fusion.rules import leaders
from gnnplace.graph import CONTROL, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.portfolio.candidates import Candidate, candidate
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator
from gnnplace.units.units import Units, allowed, colocation_closure, numbered
from gnnplace.units.variables import join

FOR_HOME = 0.02  # the share of the budget that searches leave for the way home


def at_home(problem: Problem, evaluate: Evaluator, winner: Candidate, budget: Budget) -> Candidate:
    """The winner with its strays at home, as far as memories and the rest of the budget allow.

    The step may become longer by 1 ns for each op that moves. If all strays together do not fit or take longer, each
    half of them is tried, and so on. A step at its lower bound does not end the budget. An infeasible winner stays.
    """
    if winner.score.feasibility != FEASIBLE:
        return winner
    home, evaluate = homes(problem, winner.placement), budget.metered(evaluate)
    sets = [np.flatnonzero(home != winner.placement.device)]
    while sets and len(ops := sets.pop()) and budget.spent_share < 1:
        device = winner.placement.device.copy()
        device[ops] = home[ops]
        moved = candidate(problem, evaluate, winner.planner, replace(winner.placement, device=device))
        if moved.score.feasibility == FEASIBLE and moved.score.step_time_ns <= winner.score.step_time_ns + len(ops):
            winner = replace(moved, proved_ns=winner.proved_ns)
        elif len(ops) > 1:
            sets += [ops[len(ops) // 2 :], ops[: len(ops) // 2]]
    return winner


def homes(problem: Problem, placement: Placement) -> Int32[np.ndarray, " ops"]:
    """The devices of a placement, those of strays replaced.

    A stray is a unit of sources and aliases on a device where no work reads it, through aliases or not, or makes what
    it shows. Its home is the allowed device whose first reader comes first in topological order.
    """
    units, (reader, maker) = _units(problem.graph, placement), _neighbours(problem, placement)
    last = problem.num_ops
    first = np.full((units.num_units, problem.num_devices), last, dtype=np.int64)
    near = np.zeros(first.shape, dtype=bool)
    np.minimum.at(first, units.unit, reader)
    np.logical_or.at(near, units.unit, maker)
    near |= first < last
    near[units.unit[_works(problem.graph)]] = True
    first[~allowed(problem, units)] = last
    stray = ~near[units.unit, placement.device] & (first.min(axis=1) < last)[units.unit]
    return np.where(stray, first.argmin(axis=1)[units.unit], placement.device).astype(np.int32)


class _Neighbours(NamedTuple):
    """The work beside each op on each device, through any number of sources and aliases.

    `reader` is the place, in topological order, of the first work that reads the op, the number of ops if none does.
    `maker` is True if some work makes what the op shows.
    """

    reader: Int64[np.ndarray, "ops devices"]
    maker: Bool[np.ndarray, "ops devices"]


def _neighbours(problem: Problem, placement: Placement) -> _Neighbours:
    graph, last = problem.graph, problem.num_ops
    reader = np.full((last, problem.num_devices), last, dtype=np.int64)
    maker = np.zeros(reader.shape, dtype=bool)
    work = np.flatnonzero(_works(graph))
    place = np.empty(last, dtype=np.int64)
    place[graph.order] = np.arange(last)
    reader[work, placement.device[work]] = place[work]
    maker[work, placement.device[work]] = True
    read = graph.edge_output != CONTROL
    src, dst = graph.edge_src[read], graph.edge_dst[read]
    _spread(np.minimum, reader, dst, src, ~_works(graph)[src])
    _spread(np.logical_or, maker, src, dst, ~_works(graph)[dst])
    return _Neighbours(reader, maker)


def _spread(
    least: np.ufunc, rows: np.ndarray, giver: np.ndarray, taker: np.ndarray, along: Bool[np.ndarray, " edges"]
) -> None:
    """Combines the rows of givers into those of takers, along some edges, until nothing changes."""
    giver, taker = giver[along], taker[along]
    while True:
        before = rows[taker]
        least.at(rows, taker, rows[giver])
        if np.array_equal(before, rows[taker]):
            return


def _works(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for ops that some processor works for: all but sources and aliases."""
    return graph.kernel | graph.dispatched


def _units(graph: ComputationGraph, placement: Placement) -> Units:
    """The ops that stand on one device: colocation groups and groups of fused ops."""
    label = colocation_closure(graph)
    if placement.fusion is not None:
        label = join(label, np.arange(graph.num_ops), leaders(placement.fusion))
    return numbered(graph, "ops", label)
