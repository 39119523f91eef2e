"""Repair: a placement that overflows a memory becomes one that doesn't, if blocks can move off the overfull devices.

Each round simulates the placement, freezes the times of its step (`repairing/frozen`), and moves blocks off overfull devices until by these
times nothing overflows (`repairing/relief`). Blocks are those of a search (`units/blocks`): single colocation groups, families of variables
with their users, layers, time steps. Moves change times, so the next simulation may find an overflow still; then that device gets less
room in the next round.
"""

from __future__ import annotations

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


class Blocks(NamedTuple):
    """The blocks of all grains: block b consists of the ops `op[ptr[b]:ptr[b+1]]`."""

    ptr: Int64[np.ndarray, " blocks_plus_1"]
    op: Int64[np.ndarray, " members"]


def repaired(problem: Problem, evaluate: Evaluator, placement: Placement, budget: Budget | None = None) -> Placement:
    """The best placement of a few rounds, feasible wherever one of them is; a placement that is feasible, or can't run, as it is.

    The schedule stays; priorities of the schedule `given` stay with their ops. The evaluator must give timelines. Its evaluations count
    if it is `Counted`; no round begins after the end of the budget.
    """
    (result,) = evaluate(problem, [placement], timeline=True)
    blocks = blocks_of(problem) if result.infeasible is not None else None
    best, found = placement, score(problem, result)
    here, tired, less = placement, 0, np.zeros(problem.num_devices)
    for _ in range(ROUNDS):
        if blocks is None or result.infeasible is None or result.timeline is None or tired == TIRED or (budget and not budget.allows(1)):
            break
        here, less = _relieved(problem, blocks, here, result, less)
        (result,) = evaluate(problem, [here], timeline=True)
        reached, tired = score(problem, result), tired + 1
        if reached < found:
            best, found, tired = here, reached, 0
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


def _relieved(
    problem: Problem, blocks: Blocks, placement: Placement, result: StepResult, less: Float[np.ndarray, " devices"]
) -> tuple[Placement, Float[np.ndarray, " devices"]]:
    """The placement after moves off its overfull devices, and by how much less room than its memory each device was given."""
    assert result.timeline is not None and result.peak_memory_bytes is not None and result.step_time_ns is not None
    memory, peak = problem.cluster.memory_bytes.astype(np.float64), result.peak_memory_bytes.astype(np.float64)
    still, device = frozen(problem, placement.device, result.timeline), placement.device.copy()
    less = less + np.maximum(0.0, peak - memory) * (less > 0) + np.where((peak > memory) & (less == 0), 1.0, 0.0)
    coarse = held_bytes(still, device, int(still.last.max()) + 1).max(axis=1) - peak  # slices say too much
    limit_ns = int(result.busy_ns.max())
    relieve(still, blocks.ptr, blocks.op, device, memory + coarse - less, limit_ns, max(1.0, FREE * result.step_time_ns), 10**5)
    return Placement(device, placement.schedule, placement.priority), less
