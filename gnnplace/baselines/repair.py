"""Repair: a placement that overflows a memory becomes one that doesn't, if blocks can move off the overfull devices.

Each round simulates the placement, freezes the times of its step (`repairing/frozen`), and moves blocks off overfull devices until by these
times nothing overflows (`repairing/relief`). Blocks are those of a search (`units/blocks`): single colocation groups, families of variables
with their users, layers, time steps. Moves change times, so the next simulation may find an overflow still; then that device gets less
room in the next round. When the step fits, rounds go on that move blocks to where they take less time and there is room.

Few large moves take less work, many small ones mostly lead to a faster step. What a move makes other devices send may arrive long before it
is read, or just in time, where a channel is always busy. Which of these ways leads to the best step is tried out.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.fastest import score
from gnnplace.baselines.repairing.frozen import frozen
from gnnplace.baselines.repairing.relief import hasten, relieve
from gnnplace.baselines.repairing.scale import held_bytes
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult
from gnnplace.units.blocks import grains
from gnnplace.units.units import units

ROUNDS = 16
TIRED = 5  # rounds without a better score after which a repair ends
ENOUGH = 0.97  # of a step time: a round that saves less is the last
SHARES = (0.0, 1.0, 0.5, 0.25)  # of the mean load of devices, for which none should be busy longer; 0: than one is now
FREE = 1e-5  # of the step time: the cost of a move that costs nothing


class Way(NamedTuple):
    """How to repair: what a block has to hold to be moved, as a share of what its device has too much, and when what it reads arrives."""

    least: float
    just_in_time: bool


WAYS = tuple(Way(least, just_in_time) for least in (0.03, 0.01, 1e-3) for just_in_time in (False, True))


class _Round(NamedTuple):
    """A placement and its step with a timeline."""

    placement: Placement
    result: StepResult


class Blocks(NamedTuple):
    """The blocks of all grains: block b consists of the ops `op[ptr[b]:ptr[b+1]]`."""

    ptr: Int64[np.ndarray, " blocks_plus_1"]
    op: Int64[np.ndarray, " members"]


_blocks: WeakKeyDictionary[Problem, Blocks] = WeakKeyDictionary()


def relieved(problem: Problem, evaluate: Evaluator, placement: Placement, way: Way, budget: Budget | None = None) -> Placement:
    """The best placement of rounds that move blocks off overfull devices, up to the first that fits; one that fits, or can't run, as it is.

    The schedule stays; priorities of the schedule `given` stay with their ops. The evaluator must give timelines. Its evaluations count
    if it is `Counted`; no round begins after the end of the budget.
    """
    best = here = _Round(placement, *evaluate(problem, [placement], timeline=True))
    tired, less = 0, np.zeros(problem.num_devices)
    for _ in range(ROUNDS):
        if here.result.infeasible is None or here.result.timeline is None or tired == TIRED or (budget and not budget.allows(1)):
            break
        less = _less(problem, here.result, less)
        here, tired = _simulated(problem, evaluate, here, less, way), tired + 1
        if score(problem, here.result) < score(problem, best.result):
            best, tired = here, 0
    return best.placement


def hastened(problem: Problem, evaluate: Evaluator, placement: Placement, way: Way, budget: Budget | None = None) -> Placement:
    """The best placement of rounds that move blocks to where they take less time and there is room; one that does not fit as it is.

    Rounds that make no device busier than one is are followed by such that balance devices and channels, each as long as it saves
    enough. A round that leads to an overflow is taken back, and the next one has less room. Evaluations and budget as in `relieved`.
    """
    best = _Round(placement, *evaluate(problem, [placement], timeline=True))
    for share in SHARES if best.result.infeasible is None else ():
        last = best
        best = _hastened(problem, evaluate, best, way, budget, share)
        if share > 0 and best is last:
            break
    return best.placement


def _hastened(problem: Problem, evaluate: Evaluator, best: _Round, way: Way, budget: Budget | None, share: float) -> _Round:
    """The best of rounds with one share, as long as they save enough."""
    here, less, enough, tired = best, np.zeros(problem.num_devices), True, 0
    while enough and tired < TIRED and (budget is None or budget.allows(1)):
        last, here = here, _simulated(problem, evaluate, best, less, way, share)
        enough = _faster(here.result, best.result) and not np.array_equal(here.placement.device, last.placement.device)
        if enough and here.result.infeasible is not None:
            tired, less = tired + 1, less + _over(problem, here.result)
        best = min(best, here, key=lambda each: score(problem, each.result))
    return best


def _faster(result: StepResult, than: StepResult) -> bool:
    """Whether a step is faster by enough to go on; one that can't run is not."""
    assert than.step_time_ns is not None
    return result.step_time_ns is not None and result.step_time_ns <= ENOUGH * than.step_time_ns


def blocks_of(problem: Problem) -> Blocks:
    """The blocks that a repair moves, built once and kept as long as the problem lives."""
    if problem not in _blocks:
        _blocks[problem] = _build(problem)
    return _blocks[problem]


def _build(problem: Problem) -> Blocks:
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
    over = _over(problem, result)
    return np.where(less > 0, less + over, np.minimum(over, 1.0))


def _over(problem: Problem, result: StepResult) -> Float[np.ndarray, " devices"]:
    """What each device holds too much."""
    assert result.peak_memory_bytes is not None
    return np.maximum(0.0, result.peak_memory_bytes - problem.cluster.memory_bytes.astype(np.float64))


def _simulated(
    problem: Problem, evaluate: Evaluator, here: _Round, less: Float[np.ndarray, " devices"], way: Way, share: float = 0.0
) -> _Round:
    """The round after moves off overfull devices or, where there are none, to where there is room and ops take less time."""
    placement, result = here
    assert result.timeline is not None and result.peak_memory_bytes is not None and result.step_time_ns is not None
    blocks, device = blocks_of(problem), placement.device.copy()
    still = frozen(problem, device, result.timeline, way.just_in_time)
    coarse = held_bytes(still, device, int(still.last.max()) + 1).max(axis=1) - result.peak_memory_bytes  # slices say too much
    room, limit_ns, free_ns = problem.cluster.memory_bytes + coarse - less, int(result.busy_ns.max()), max(1.0, FREE * result.step_time_ns)
    if result.infeasible is None:
        hasten(still, blocks.ptr, blocks.op, device, room, share)
    else:
        relieve(still, blocks.ptr, blocks.op, device, room, limit_ns, free_ns, way.least)
    moved = Placement(device, placement.schedule, placement.priority)
    return _Round(moved, *evaluate(problem, [moved], timeline=True))
