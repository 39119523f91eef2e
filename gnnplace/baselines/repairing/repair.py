"""Repair: moves blocks off overfull devices until a placement fits all memories, and then makes its step faster.

Each round simulates the placement, freezes the times of its step (`repairing/frozen`), and moves blocks off overfull
devices until nothing overflows at these times (`repairing/relief`). Blocks are those of searches (`units/blocks`):
single colocation groups, families of variables with their users, layers, time steps. Moves change times, so the next
simulation may still find an overflow; then that device gets less room in the next round. Once the step fits, further
rounds move blocks to devices with room where they take less time.

An order of ops that frees memory earlier may save moves, so every round is simulated under several schedules. A few
large moves take less work; many small moves mostly lead to a faster step. A tensor that a move makes another device
send may arrive long before its reader, or just in time if a channel is always busy. The caller tries several of these
ways and keeps the best step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.repairing.frozen import Frozen, frozen
from gnnplace.baselines.repairing.relief import hasten, relieve
from gnnplace.baselines.repairing.scale import held_bytes
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, StepResult, score
from gnnplace.units.blocks import grains
from gnnplace.units.units import units

ROUNDS = 16
TIRED = 5  # rounds without a better score after which a repair ends
ENOUGH = 0.97  # of a step time: a round that saves less is the last
SHARES = (0.0, 1.0, 0.5, 0.25)  # of the mean load: no device should be busy for longer; 0: than the busiest is now
FIRST = (1.0, 0.5, 0.25)  # shares of the hastening moves that are tried: frozen times are wrong after many moves
FREE = 1e-5  # the cost of a move that costs no time, as a share of the step time


class Way(NamedTuple):
    """A way to repair.

    A block moves if it holds at least the share `least` of the excess of its device. `just_in_time` says when its
    inputs arrive (`frozen`).
    """

    least: float
    just_in_time: bool


WAYS = tuple(Way(least, just_in_time) for least in (1e-3, 0.01, 0.03) for just_in_time in (False, True))


class GrainBlocks(NamedTuple):
    """The blocks of all grains: block b consists of the ops `op[ptr[b]:ptr[b+1]]`."""

    ptr: Int64[np.ndarray, " blocks_plus_1"]
    op: Int64[np.ndarray, " members"]


Room = Float[np.ndarray, " devices"]  # bytes

_blocks: WeakKeyDictionary[Problem, GrainBlocks] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Repair:
    """A repairer of placements of a problem, in one way.

    The evaluator must give timelines. A placement is evaluated under its own schedule and under each of `schedules`;
    priorities of the schedule `given` stay with their ops. No round begins after the end of the budget.
    """

    problem: Problem
    evaluate: Evaluator
    way: Way
    schedules: Sequence[Schedule] = ()
    budget: Budget | None = None

    def relieved(self, placement: Placement) -> Placement:
        """The best placement after rounds that move blocks off overfull devices, up to the first that fits.

        A placement without a step is returned.
        """
        best = here = self._simulated(placement)
        tired, less = 0, np.zeros(self.problem.num_devices)
        for _ in range(ROUNDS):
            if here.result.infeasible is None or here.result.timeline is None or tired == TIRED or not self._goes_on:
                break
            less = self._less(here.result, less)
            here, tired = self._relieved(here, less), tired + 1
            if self._score(here) < self._score(best):
                best, tired = here, 0
        return best.placement

    def hastened(self, placement: Placement) -> Placement:
        """The best placement after rounds that move blocks to devices with room where they take less time.

        The first rounds make no device busier than the busiest. Later rounds balance devices and channels, each as long
        as it saves enough. A placement that does not fit is returned.
        """
        best = self._simulated(placement)
        for share in SHARES if best.result.infeasible is None else ():
            last = best
            best = self._hastened(best, share)
            if share > 0 and best is last:
                break
        return best.placement

    def _hastened(self, best: _Round, share: float) -> _Round:
        """The best of rounds with one share of `SHARES`.

        If a faster round only fails by an overflow, devices have less room in the next one.
        """
        tired, less = 0, np.zeros(self.problem.num_devices)
        while tired < TIRED and self._goes_on:
            last, tried = best, self._faster_ones(best, less, share)
            best = min([last, *tried], key=self._score)
            overflowing = [
                each.result
                for each in tried
                if each.result.infeasible is not None and _faster(each.result, last.result)
            ]
            if _faster(best.result, last.result):
                tired, less = 0, np.zeros(self.problem.num_devices)
            elif overflowing:
                tired, less = tired + 1, less + self._over(overflowing[0])
            else:
                break
        return best

    def _faster_ones(self, here: _Round, less: Room, share: float) -> list[_Round]:
        """The rounds after all moves that should hasten a step, then after only the first of them.

        It ends with the first round that fits and is faster by enough.
        """
        placement, result = here
        still, room = self._frozen(here, less)
        blocks, tried = blocks_of(self.problem), list[_Round]()
        moves = hasten(still, blocks.ptr, blocks.op, placement.device.copy(), room, share)
        for part in FIRST if moves else ():
            if self._goes_on and not any(
                each.result.infeasible is None and _faster(each.result, result) for each in tried
            ):
                device = placement.device.copy()
                for block, left, to in moves[: int(np.ceil(part * len(moves)))]:
                    ops = blocks.op[blocks.ptr[block] : blocks.ptr[block + 1]]
                    device[ops[device[ops] == left]] = to
                tried.append(self._simulated(Placement(device, placement.schedule, placement.priority)))
        return tried

    def _relieved(self, here: _Round, less: Room) -> _Round:
        """The round after moves off overfull devices."""
        placement, result = here
        assert result.step_time_ns is not None
        (still, room), blocks, device = self._frozen(here, less), blocks_of(self.problem), placement.device.copy()
        limit_ns, free_ns = int(result.busy_ns.max()), max(1.0, FREE * result.step_time_ns)
        relieve(still, blocks.ptr, blocks.op, device, room, limit_ns, free_ns, self.way.least)
        return self._simulated(Placement(device, placement.schedule, placement.priority))

    def _frozen(self, here: _Round, less: Room) -> tuple[Frozen, Room]:
        """A step with frozen times, and the room of devices, corrected for the bytes that slices overestimate."""
        placement, result = here
        assert result.timeline is not None and result.peak_memory_bytes is not None
        still = frozen(self.problem, placement.device, result.timeline, self.way.just_in_time)
        coarse = held_bytes(still, placement.device, int(still.last.max()) + 1).max(axis=1) - result.peak_memory_bytes
        return still, self.problem.cluster.memory_bytes + coarse - less

    def _simulated(self, placement: Placement) -> _Round:
        """The round of a placement under its best schedule; the first on a tie."""
        others = [each for each in self.schedules if placement.priority is None and each != placement.schedule]
        tried = [placement, *(scheduled(placement, each) for each in others)]
        results = self.evaluate(self.problem, tried, timeline=True)
        return min((_Round(each, result) for each, result in zip(tried, results, strict=True)), key=self._score)

    def _score(self, trial: _Round) -> Score:
        return score(self.problem, trial.result)

    @property
    def _goes_on(self) -> bool:
        return self.budget is None or self.budget.allows(1) > 0

    def _less(self, result: StepResult, less: Room) -> Room:
        """The bytes by which the room of each device is less than its memory: its excess in all rounds so far.

        Rounds count from the first overflow of the device.
        """
        over = self._over(result)
        return np.where(less > 0, less + over, np.minimum(over, 1.0))

    def _over(self, result: StepResult) -> Room:
        """The excess bytes of each device."""
        assert result.peak_memory_bytes is not None
        return np.maximum(0.0, result.peak_memory_bytes - self.problem.cluster.memory_bytes.astype(np.float64))


class _Round(NamedTuple):
    """A placement and its step with a timeline."""

    placement: Placement
    result: StepResult


def _faster(result: StepResult, than: StepResult) -> bool:
    """Whether a step exists and is faster by enough to go on."""
    assert than.step_time_ns is not None
    return result.step_time_ns is not None and result.step_time_ns <= ENOUGH * than.step_time_ns


def blocks_of(problem: Problem) -> GrainBlocks:
    """The blocks that a repair moves, built once and kept as long as the problem lives."""
    if problem not in _blocks:
        _blocks[problem] = _build(problem)
    return _blocks[problem]


def _build(problem: Problem) -> GrainBlocks:
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
    return GrainBlocks(np.cumsum(np.concatenate(sizes)), np.concatenate(ops).astype(np.int64))
