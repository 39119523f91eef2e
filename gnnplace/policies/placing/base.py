"""A base schedule as an observation: what would change if a group left its device, read off one simulated step.

The base is the fastest of a few starts (`base_search`). The features of moves (`moves.features`) say of each group and
device what its timeline knows of sending the group there while all others stay: who waits for the group and for how
long, the longest path through it, loads, idle time, channels, memory. They name no op, no graph and no device. `stays`
is the share of the group's work that the base has on the device, so a placer can tell what the base would do; it
proposes placements of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from gnnplace.moves.columns import CHANNEL_AFTER, LOAD_AFTER, NAMES, OVERFLOW_BEFORE
from gnnplace.moves.drawing import Drawn
from gnnplace.moves.features import features, work
from gnnplace.moves.neighbourhood import Devices, Terrain, neighbourhood
from gnnplace.moves.ranking import squashed
from gnnplace.moves.situation import Situation, situation
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Score, StepResult, score
from gnnplace.units.units import Units

BASE_OBSERVATIONS = (*NAMES, "stays")
STAYS = len(NAMES)


FAR = 2.0  # times the base's step: a device or channel that is busy for so long can't be what others make up for


class Base(NamedTuple):
    """A base schedule of one problem: the device of each unit of moves, and the situation of its simulated step.

    `unit` is the unit of a policy of each of these units, `work_ns` their work, `schedule` the order of its ops.
    """

    device: Devices
    schedule: Schedule
    situation: Situation
    terrain: Terrain
    unit: Int64[np.ndarray, " moved"]
    work_ns: Int64[np.ndarray, "moved devices"]
    score: Score

    def units(self, count: int) -> Int64[np.ndarray, " units"]:
        """The device with most of each of a policy's `count` units' work in the base."""
        return _shares(self.unit, self, count).argmax(axis=1)

    def rows(
        self, group: Int64[np.ndarray, " units"], groups: int
    ) -> Float32[np.ndarray, "groups devices base_observations"]:
        """The observations of each group on each device. A row is zeros but for `stays` where nothing would move."""
        of_moved, devices = group[self.unit], self.work_ns.shape[1]
        moves = _every_move(self.device, of_moved, groups, devices)
        seen = features(self.terrain, self.situation, moves, work(self.terrain))[:, :STAYS]
        scaled = squashed(seen.reshape(groups, devices, STAYS).astype(np.float64))
        stays = _shares(of_moved, self, groups)
        return np.concatenate([scaled, stays[..., None]], axis=-1).astype(np.float32)


def useless(
    rows: Float32[np.ndarray, "*shape base_observations"],
) -> Bool[np.ndarray, "*shape"]:
    """Moves after which a device or channel is busy for `FAR` times the step of the base, all else staying.

    None counts as useless while a memory of the base overflows.
    """
    busy = np.maximum(rows[..., LOAD_AFTER], rows[..., CHANNEL_AFTER])
    return (busy >= squashed(np.array([[FAR]]))[0, 0]) & (rows[..., OVERFLOW_BEFORE] == 0)


def best_base(
    problem: Problem,
    units: Units,
    tried: Sequence[Placement],
    results: Sequence[StepResult],
    before: Base | None = None,
) -> Base:
    """The best of placements with their results, or the base `before` if none is better.

    Raises ValueError if there is none, and none of the placements has a timeline.
    """
    around = neighbourhood(problem)
    scores = {number: score(problem, each) for number, each in enumerate(results) if each.timeline is not None}
    if before is None and not scores:
        raise ValueError(f"{problem.cluster.name}: nothing that could be observed runs: {results[0].infeasible}")
    best = min(scores, key=lambda number: scores[number], default=0)
    if before is not None and (not scores or before.score <= scores[best]):
        return before
    device = around.start(tried[best])
    unit = np.zeros(around.closure.num_units, np.int64)
    unit[around.closure.unit] = units.unit
    seen = situation(problem, around, device, results[best])
    return Base(device, tried[best].schedule, seen, around.terrain, unit, around.work_ns, scores[best])


def _shares(of_moved: Int64[np.ndarray, " moved"], base: Base, count: int) -> np.ndarray:
    """The share of the work of each of `count` sets that the base has on each device; 0 of an empty set."""
    done = np.zeros((count, base.work_ns.shape[1]))
    np.add.at(done, (of_moved, base.device), base.work_ns.min(axis=1))
    total = done.sum(axis=1, keepdims=True)
    return np.divide(done, total, out=np.zeros_like(done), where=total > 0)


def _every_move(device: Devices, group: Int64[np.ndarray, " moved"], groups: int, devices: int) -> Drawn:
    """Every group to every device, group by group: move `g * devices + d`."""
    moved, to = np.nonzero(device[:, None] != np.arange(devices))
    move = group[moved] * devices + to
    order, count = np.argsort(move, kind="stable"), groups * devices
    return Drawn(
        ptr=np.concatenate([[0], np.cumsum(np.bincount(move, minlength=count))]),
        unit=moved[order],
        device=to[order].astype(np.int32),
        kind=np.zeros((count, 2), np.int8),
        guided=np.zeros(count, np.int8),
        blocks=np.ones(count, np.int8),
        change=np.zeros(count, np.uint64),
    )
