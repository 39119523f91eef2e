"""Repair: a placement that overflows a memory becomes one that doesn't, if blocks can move off the overfull devices.

Each round simulates the placement, freezes the times of its step (`repairing/frozen`), and moves blocks off overfull devices until by these
times nothing overflows (`repairing/relief`). Blocks are those of a search (`units/blocks`): single colocation groups, families of variables
with their users, layers, time steps. Moves change times, so the next simulation may find an overflow still; then that device gets less
room in the next round. Few large moves take less work, many small ones mostly lead to a faster step. What a move makes other devices send
may arrive long before it is read, or just in time, where a channel is always busy. Which leads to the best step is tried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.fastest import score
from gnnplace.baselines.repairing.frozen import frozen
from gnnplace.baselines.repairing.relief import held_bytes, relieve
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult
from gnnplace.units.blocks import grains
from gnnplace.units.units import units

ROUNDS = 16
TIRED = 5  # rounds without a better score after which a repair ends
FREE = 1e-5  # of the step time: the cost of a move that costs nothing


class Way(NamedTuple):
    """How to repair: what a block has to hold to be moved, as a share of what its device has too much, and when what it reads arrives."""

    least: float
    just_in_time: bool


COARSE = (Way(0.03, True), Way(0.03, False))
FINE = tuple(Way(least, just_in_time) for least in (0.01, 1e-3) for just_in_time in (True, False))


class _Round(NamedTuple):
    """A placement and its step with a timeline."""

    placement: Placement
    result: StepResult


class Blocks(NamedTuple):
    """The blocks of all grains: block b consists of the ops `op[ptr[b]:ptr[b+1]]`."""

    ptr: Int64[np.ndarray, " blocks_plus_1"]
    op: Int64[np.ndarray, " members"]


def repaired(
    problem: Problem, evaluate: Evaluator, placement: Placement, budget: Budget | None = None, ways: Sequence[Way] = COARSE + FINE
) -> Placement:
    """The best placement of a few rounds, feasible wherever one of them is; a placement that is feasible, or can't run, as it is.

    The schedule stays; priorities of the schedule `given` stay with their ops. The evaluator must give timelines. Its evaluations count
    if it is `Counted`; no round begins after the end of the budget.
    """
    first = _Round(placement, *evaluate(problem, [placement], timeline=True))
    if first.result.infeasible is None or first.result.timeline is None:
        return placement
    blocks = blocks_of(problem)
    found = [_rounds(problem, evaluate, blocks, first, way, budget) for way in ways]
    return min([first, *found], key=lambda each: score(problem, each.result)).placement


def _rounds(problem: Problem, evaluate: Evaluator, blocks: Blocks, first: _Round, way: Way, budget: Budget | None) -> _Round:
    """The best of all rounds that move blocks of a size, up to the first whose placement fits."""
    best = here = first
    tired, less = 0, np.zeros(problem.num_devices)
    for _ in range(ROUNDS):
        if here.result.infeasible is None or here.result.timeline is None or tired == TIRED or (budget and not budget.allows(1)):
            break
        less = _less(problem, here.result, less)
        placement = _relieved(problem, blocks, here, less, way)
        here, tired = _Round(placement, *evaluate(problem, [placement], timeline=True)), tired + 1
        if score(problem, here.result) < score(problem, best.result):
            best, tired = here, 0
    return best


def blocks_of(problem: Problem) -> Blocks:
    """The blocks that a repair moves."""
    closure = units(problem.graph, "ops")
    by_unit = np.argsort(closure.unit, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(closure.unit))])
    pairs = [(grain.ptr, grain.member) for grain in grains(problem.graph)]
    sizes, ops = [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for ptr, member in pairs:
        count = np.diff(start)[member]
        ends = np.concatenate([[0], np.cumsum(count)])
        at = np.repeat(start[member] - ends[:-1], count) + np.arange(ends[-1])
        ops.append(by_unit[at])
        sizes.append(np.diff(ends[ptr]))
    return Blocks(np.cumsum(np.concatenate(sizes)), np.concatenate(ops).astype(np.int64))


def _less(problem: Problem, result: StepResult, less: Float[np.ndarray, " devices"]) -> Float[np.ndarray, " devices"]:
    """By how much less room than its memory each device is given: what it had too much in all rounds since its first overflow."""
    assert result.peak_memory_bytes is not None
    over = np.maximum(0.0, result.peak_memory_bytes - problem.cluster.memory_bytes.astype(np.float64))
    return np.where(less > 0, less + over, np.minimum(over, 1.0))


def _relieved(problem: Problem, blocks: Blocks, here: _Round, less: Float[np.ndarray, " devices"], way: Way) -> Placement:
    """The placement after moves off overfull devices."""
    placement, result = here
    assert result.timeline is not None and result.peak_memory_bytes is not None and result.step_time_ns is not None
    still, device = frozen(problem, placement.device, result.timeline, way.just_in_time), placement.device.copy()
    coarse = held_bytes(still, device, int(still.last.max()) + 1).max(axis=1) - result.peak_memory_bytes  # slices say too much
    room, limit_ns, free_ns = problem.cluster.memory_bytes + coarse - less, int(result.busy_ns.max()), max(1.0, FREE * result.step_time_ns)
    relieve(still, blocks.ptr, blocks.op, device, room, limit_ns, free_ns, way.least)
    return Placement(device, placement.schedule, placement.priority)
