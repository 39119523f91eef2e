"""Hill climbing that ranks many moves by features of the timeline and evaluates only the most promising.

Each round draws moves, ranks them with the moves left from earlier rounds, and evaluates the first few that differ,
with timelines. The best result becomes the current placement unless it is worse. If several moves improve the step, the
next round also evaluates all of them together. The best of the moves left are ranked again from the new placement.
Moves after which a device or channel would be busy for longer than the current step come last, because they can't
improve it.

`path_estimate` ranks without learning, by the change of the critical chain and of the longest path through the moved
ops. Several rankings take turns; a ranking whose moves have gained more chooses more often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from gnnplace.baselines.searching.budget import Budget
from gnnplace.moves import columns
from gnnplace.moves.columns import hopeless
from gnnplace.moves.drawing import Drawn, hash_of
from gnnplace.moves.features import WorkingMemory, features, work
from gnnplace.moves.neighbourhood import Devices, Neighbourhood, neighbourhood
from gnnplace.moves.pool import Pool, distinct, fresh, from_there, some, together, unknown
from gnnplace.moves.situation import Situation, situation
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, StepResult, score

TOGETHER = 4  # moves evaluated together
DRAWN = 150  # moves drawn from a new placement; half as many in each further round from the same one
KEPT, MOST_KEPT = 24, 400  # the most moves left over for a new placement, and for a further round from the same one
ALIKE = 0.7  # moves that share more of their changes than this are not evaluated together
LEAST_SHARE = 0.2  # the least share of the moves that each of several rankings chooses
EXPECTED, DOUBTS = 0.001, 2  # the prior of the gain of a move, and its weight in moves

Rank = Callable[[Float32[np.ndarray, "moves features"]], Float[np.ndarray, " moves"]]  # the highest is tried first
Report = Callable[[Score], object]


def path_estimate(rows: Float32[np.ndarray, "moves features"]) -> Float64[np.ndarray, " moves"]:
    """The decrease of the critical chain, minus the excess of the longest path through the moved ops over the step."""
    return -(rows[:, columns.PATH_BEYOND] + rows[:, columns.CHAIN_MORE]).astype(np.float64)


class RankingTurns:
    """The turns of several rankings: the share of each follows the mean gain of the moves that it chose so far."""

    def __init__(self, rankings: int) -> None:
        self.gained, self.chosen = np.full(rankings, EXPECTED * DOUBTS), np.full(rankings, float(DOUBTS))

    @property
    def shares(self) -> Float64[np.ndarray, " rankings"]:
        """The share of each ranking, at least `LEAST_SHARE` (or an equal share, if that is less). The sum is 1."""
        least, gain = min(LEAST_SHARE, 1 / len(self.gained)), self.gained / self.chosen
        return least + (1 - least * len(gain)) * gain / gain.sum()

    def merged(
        self, estimates: Float[np.ndarray, "rankings moves"], last: Bool[np.ndarray, " moves"]
    ) -> tuple[Int64[np.ndarray, " moves"], Int64[np.ndarray, " moves"]]:
        """All moves in the order in which the rankings choose them, and the ranking that chooses each move.

        The moves marked `last` come last.
        """
        orders = [np.lexsort((-estimate, last)) for estimate in estimates]
        if len(orders) == 1:
            return orders[0], np.zeros(len(last), dtype=np.int64)
        # Ranking r makes its nth choice at time n / share: a move goes to the ranking that comes to it first.
        at = np.stack([np.argsort(order) for order in orders]) / self.shares[:, None]
        return np.lexsort((at.min(axis=0), last)), at.argmin(axis=0)

    def learn(self, whose: Int64[np.ndarray, " tried"], gains: Sequence[float]) -> None:
        """Records the gains of moves and the rankings that chose them."""
        np.add.at(self.gained, whose, gains)
        np.add.at(self.chosen, whose, 1.0)


def _gain(before: Score, after: Score) -> float:
    """The share of the step time that a move saves; 0 if it is no better.

    EXPECTED if it is better and the placement before overflows a memory.
    """
    if after >= before:
        return 0.0
    return 1 - after.step_time_ns / before.step_time_ns if before.limit_ns is not None else EXPECTED


class _Here(NamedTuple):
    """The current placement."""

    device: Devices
    score: Score
    situation: Situation


class _Ranked(NamedTuple):
    """Moves that are not evaluated yet: their features from the current placement, and the scores of each ranking."""

    moves: Drawn
    rows: Float32[np.ndarray, "moves features"]
    estimates: Float64[np.ndarray, "rankings moves"]

    @classmethod
    def of(cls, pool: Pool, ranks: Sequence[Rank]) -> _Ranked:
        return cls(*pool, np.array([rank(pool.rows) for rank in ranks]))

    def some(self, which: Int64[np.ndarray, " some"]) -> _Ranked:
        return _Ranked(some(self.moves, which), self.rows[which], self.estimates[:, which])

    def joined(self, other: _Ranked) -> _Ranked:
        rows, estimates = ([self.rows, other.rows], [self.estimates, other.estimates])
        return _Ranked(together(self.moves, other.moves), np.concatenate(rows), np.concatenate(estimates, axis=1))


def ranked_climb(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
    ranks: Sequence[Rank] = (path_estimate,),
    drawn: int = DRAWN,
    report: Report = lambda score: None,
) -> Placement:
    """The best placement that the search evaluates; it respects `allowed` and is never worse than a `start` that does.

    Under `given` and `in-order` the priorities of the start stay. The evaluator must give timelines. A start that needs
    a missing link is returned. Raises ValueError if a unit is allowed on no device.
    """
    around = neighbourhood(problem)
    placed = partial(around.placement, schedule=schedule, priority=scheduled(start, schedule).priority)
    climb = _Climb(problem, budget.metered(evaluate), generator, placed, ranks, drawn, around, work(around.terrain))
    device = around.start(start)
    (result,), _ = climb.scored([device])
    if result.timeline is None:
        return placed(device)
    here, turns = climb.here(device, result), RankingTurns(len(ranks))
    seen, pool, union = {int(hash_of(device))}, None, None
    while around.grains and (count := budget.allows(TOGETHER)):
        pool = climb.filled(pool, here, seen)
        chosen, whose, left = _choose(pool, turns, count - (union is not None))
        tried = [*([] if union is None else [union]), *(pool.moves.after(int(move), here.device) for move in chosen)]
        if not tried:
            break
        seen |= {int(hash_of(device)) for device in tried}
        results, scores = climb.scored(tried, here.score.limit_ns)
        turns.learn(whose, [_gain(here.score, reached) for reached in scores[len(tried) - len(chosen) :]])
        best = scores.index(min(scores))
        if scores[best] <= here.score and results[best].timeline is not None:
            if scores[best] < here.score:
                report(scores[best])
            union = _union(here, zip(scores, tried, strict=True), seen)
            here = climb.here(tried[best], results[best])
            pool = climb.ranked(here, some(pool.moves, left[:KEPT]))
        else:
            union, pool = None, pool.some(left[:MOST_KEPT])
    return placed(here.device)


@dataclass(frozen=True, eq=False)
class _Climb:
    """The parts of a climb that do not change from round to round."""

    problem: Problem
    evaluate: Evaluator
    generator: np.random.Generator
    placed: Callable[[Devices], Placement]
    ranks: Sequence[Rank]
    drawn: int
    around: Neighbourhood
    scratch: WorkingMemory

    def scored(self, tried: Sequence[Devices], limit_ns: int | None = None) -> tuple[Sequence[StepResult], list[Score]]:
        """The steps of placements, with their timelines, and their scores."""
        placements = [self.placed(device) for device in tried]
        results = self.evaluate(self.problem, placements, timeline=True, limit_ns=limit_ns)
        return results, [score(self.problem, result) for result in results]

    def here(self, device: Devices, result: StepResult) -> _Here:
        """A placement as the current one; its result has a timeline."""
        return _Here(device, score(self.problem, result), situation(self.problem, self.around, device, result))

    def filled(self, pool: _Ranked | None, here: _Here, seen: set[int]) -> _Ranked:
        """The pool with new moves. No move leads to a placement in `seen`, and no two to the same placement."""
        if pool is None:
            return self._fresh(here, self.drawn, seen)
        word = int(hash_of(here.device))
        there = [word ^ change for change in pool.moves.change.tolist()]
        new = self._fresh(here, self.drawn // 2, seen.union(there))
        return pool.some(np.flatnonzero(unknown(there, seen))).joined(new)

    def ranked(self, here: _Here, moves: Drawn) -> _Ranked:
        """Moves that were drawn for another placement, ranked from the current one."""
        moves = from_there(moves, here.device)
        pool = Pool(moves, features(self.around.terrain, here.situation, moves, self.scratch))
        return _Ranked.of(pool, self.ranks)

    def _fresh(self, here: _Here, count: int, seen: set[int]) -> _Ranked:
        pool = fresh(self.around, here.device, here.situation, self.generator, count, seen, self.scratch)
        return _Ranked.of(pool, self.ranks)


def _choose(
    pool: _Ranked, turns: RankingTurns, count: int
) -> tuple[Int64[np.ndarray, " chosen"], Int64[np.ndarray, " chosen"], Int64[np.ndarray, " left"]]:
    """At most `count` moves to evaluate, the ranking that chooses each, and the other moves in their order."""
    order, whose = turns.merged(pool.estimates, hopeless(pool.rows))
    chosen = distinct(pool.moves, order, count, ALIKE)
    return chosen, whose[chosen], order[~np.isin(order, chosen)]


def _union(here: _Here, tried: Iterable[tuple[Score, Devices]], seen: set[int]) -> Devices | None:
    """The placement with all improvements; if they conflict, the better one prevails.

    None for fewer than two improvements, and if the placement was evaluated before.
    """
    better = [device for reached, device in sorted(tried, key=itemgetter(0)) if reached < here.score]
    together = here.device.copy()
    for improved in reversed(better):
        together = np.where(improved != here.device, improved, together)
    return together if len(better) > 1 and int(hash_of(together)) not in seen else None
