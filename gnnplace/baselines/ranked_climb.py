"""Hill climbing that ranks many moves by what the timeline says of them, and evaluates the most promising.

Each round draws moves, ranks them with those left of the rounds before, and evaluates the first few that differ, with
their timelines. The best of these becomes the placement at hand unless it is worse; where several improve the step, all
of them together are tried in the next round. The best of what is left is ranked again from the new placement. Moves
after which a device or channel would be busy for longer than the step at hand takes come last, because they can't
improve it.

`path_estimate` ranks without learning: the change of the critical chain and of the longest path through the moved ops.
Several rankings take turns, more often those whose moves have gained more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, StepResult, score

TOGETHER = 4  # moves evaluated together
DRAWN = 150  # moves drawn from a new placement; half as many in each further round from the same one
KEPT, MOST_KEPT = 24, 400  # of the best moves that are left: so many for the next placement, and for the next round
ALIKE = 0.7  # moves that share more of their changes than this are not evaluated together
LEAST_SHARE = 0.2  # of the moves, of each of several rankings
EXPECTED, DOUBTS = 0.001, 2  # the gain of a move before any was seen, and how many moves that counts for

Rank = Callable[[Float32[np.ndarray, "moves features"]], Float[np.ndarray, " moves"]]  # the higher, the sooner
Report = Callable[[Score], object]


def path_estimate(rows: Float32[np.ndarray, "moves features"]) -> Float64[np.ndarray, " moves"]:
    """By how much the critical chain gets shorter, less what the longest path through the moved ops then exceeds the
    step by.
    """
    return -(rows[:, columns.PATH_BEYOND] + rows[:, columns.CHAIN_MORE]).astype(np.float64)


class RankingTurns:
    """How several rankings take turns: the share of each follows the mean gain of the moves that it chose so far."""

    def __init__(self, rankings: int) -> None:
        self.gained, self.chosen = np.full(rankings, EXPECTED * DOUBTS), np.full(rankings, float(DOUBTS))

    @property
    def shares(self) -> Float64[np.ndarray, " rankings"]:
        """They sum to 1; each is at least `LEAST_SHARE`, or what equal shares would be."""
        least, gain = min(LEAST_SHARE, 1 / len(self.gained)), self.gained / self.chosen
        return least + (1 - least * len(gain)) * gain / gain.sum()

    def merged(
        self, estimates: Float[np.ndarray, "rankings moves"], last: Bool[np.ndarray, " moves"]
    ) -> tuple[Int64[np.ndarray, " moves"], Int64[np.ndarray, " moves"]]:
        """All moves in the order in which the rankings choose them, the `last` ones last, and the ranking that chooses
        each move.
        """
        orders = [np.lexsort((-estimate, last)) for estimate in estimates]
        if len(orders) == 1:
            return orders[0], np.zeros(len(last), dtype=np.int64)
        # Ranking r makes its nth choice at time n / share: a move goes to the ranking that comes to it first.
        at = np.stack([np.argsort(order) for order in orders]) / self.shares[:, None]
        return np.lexsort((at.min(axis=0), last)), at.argmin(axis=0)

    def learn(self, whose: Int64[np.ndarray, " tried"], gains: Sequence[float]) -> None:
        """Takes note of what moves have gained, and which rankings chose them."""
        np.add.at(self.gained, whose, gains)
        np.add.at(self.chosen, whose, 1.0)


def _gain(before: Score, after: Score) -> float:
    """The share of the step time that a move saves; 0 where it is no better, EXPECTED where it is but a memory
    overflows.
    """
    if after >= before:
        return 0.0
    return 1 - after.step_time_ns / before.step_time_ns if before.limit_ns is not None else EXPECTED


class _Here(NamedTuple):
    """The placement at hand."""

    device: Devices
    score: Score
    situation: Situation


class _Ranked(NamedTuple):
    """Moves that are not evaluated yet, with their features from the placement at hand, and what each ranking makes of
    them.
    """

    moves: Drawn
    rows: Float32[np.ndarray, "moves features"]
    estimates: Float64[np.ndarray, "rankings moves"]

    @classmethod
    def of(cls, pool: Pool, ranks: Sequence[Rank]) -> _Ranked:
        return cls(*pool, np.array([rank(pool.rows) for rank in ranks]))

    def some(self, which: Int64[np.ndarray, " some"]) -> _Ranked:
        return _Ranked(some(self.moves, which), self.rows[which], self.estimates[:, which])

    def joined(self, other: _Ranked) -> _Ranked:
        rows, estimates = (
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.estimates, other.estimates], axis=1),
        )
        return _Ranked(together(self.moves, other.moves), rows, estimates)


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

    The evaluator must give timelines. A start that needs a missing link is returned as it is. Raises ValueError where a
    unit is allowed on no device.
    """
    around = neighbourhood(problem)
    scratch, here, evaluated = (
        work(around.terrain),
        around.start(start),
        partial(_evaluated, problem, budget.metered(evaluate), around, schedule),
    )
    (result,) = evaluated([here])
    if result.timeline is None:
        return around.placement(here, schedule)
    at = _Here(here, score(problem, result), situation(problem, around, here, result))
    seen, pool, union, turns = {int(hash_of(here))}, None, None, RankingTurns(len(ranks))
    while around.grains and (count := budget.allows(TOGETHER)):
        pool = _filled(around, at, pool, seen, scratch, generator, drawn, ranks)
        order, whose = turns.merged(pool.estimates, hopeless(pool.rows))
        chosen = distinct(pool.moves, order, count - (union is not None), ALIKE)
        tried = [*([] if union is None else [union]), *(pool.moves.after(int(move), at.device) for move in chosen)]
        if not tried:
            break
        seen |= {int(hash_of(device)) for device in tried}
        results = evaluated(tried, at.score.limit_ns)
        scores = [score(problem, result) for result in results]
        turns.learn(whose[chosen], [_gain(at.score, reached) for reached in scores[len(tried) - len(chosen) :]])
        first, left = min(range(len(tried)), key=scores.__getitem__), order[~np.isin(order, chosen)]
        if scores[first] <= at.score and results[first].timeline is not None:
            union = _union(at, zip(scores, tried, strict=True), seen)
            if scores[first] < at.score:
                report(scores[first])
            at = _Here(tried[first], scores[first], situation(problem, around, tried[first], results[first]))
            pool = _Ranked.of(_seen_from(around, at, some(pool.moves, left[:KEPT]), scratch), ranks)
        else:
            union, pool = None, pool.some(left[:MOST_KEPT])
    return around.placement(at.device, schedule)


def _evaluated(
    problem: Problem, evaluate: Evaluator, around: Neighbourhood, schedule: Schedule, tried: Sequence[Devices],
    limit_ns: int | None = None,
) -> tuple[StepResult, ...]:  # fmt: skip
    """The steps of placements with their timelines."""
    return evaluate(problem, [around.placement(device, schedule) for device in tried], timeline=True, limit_ns=limit_ns)


def _filled(
    around: Neighbourhood, at: _Here, pool: _Ranked | None, seen: set[int], scratch: WorkingMemory,
    generator: np.random.Generator, count: int,
    ranks: Sequence[Rank],
) -> _Ranked:  # fmt: skip
    """The pool with new moves: none leads to a placement that was evaluated, and no two lead to the same one."""
    if pool is None:
        return _Ranked.of(fresh(around, at.device, at.situation, generator, count, seen, scratch), ranks)
    there = [int(hash_of(at.device)) ^ change for change in pool.moves.change.tolist()]
    new = fresh(around, at.device, at.situation, generator, count // 2, seen.union(there), scratch)
    return pool.some(np.flatnonzero(unknown(there, seen))).joined(_Ranked.of(new, ranks))


def _seen_from(around: Neighbourhood, at: _Here, moves: Drawn, scratch: WorkingMemory) -> Pool:
    moves = from_there(moves, at.device)
    return Pool(moves, features(around.terrain, at.situation, moves, scratch))


def _union(at: _Here, tried: Iterable[tuple[Score, Devices]], seen: set[int]) -> Devices | None:
    """All improvements together, the best one last so that it prevails; None for fewer than two, and where it was
    evaluated.
    """
    better = [device for reached, device in sorted(tried, key=itemgetter(0)) if reached < at.score]
    together = at.device.copy()
    for improved in reversed(better):
        together = np.where(improved != at.device, improved, together)
    return together if len(better) > 1 and int(hash_of(together)) not in seen else None
