"""Hill climbing that ranks many moves by what the timeline says of them, and evaluates the most promising.

Each round draws moves, ranks them with those left of the rounds before, and evaluates the first few that differ, with their timelines. The
best of these becomes the placement at hand unless it is worse; where several improve the step, all of them together are tried in the next
round. The best of what is left is ranked again from the new placement.

`path_estimate` ranks without learning: the change of the critical chain and of the longest path through the moved ops. Moves after which a
device or channel would be busy for longer than the step at hand takes come last, because they can't improve it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64

from gnnplace.baselines.fastest import Score, score
from gnnplace.baselines.searching.budget import Budget
from gnnplace.moves import columns
from gnnplace.moves.drawing import Drawn, draw, hash_of
from gnnplace.moves.features import Work, features, work
from gnnplace.moves.guide import guide
from gnnplace.moves.neighbourhood import Devices, Neighbourhood, neighbourhood
from gnnplace.moves.pool import distinct, from_there, some, together, unknown
from gnnplace.moves.situation import Situation, situation
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

TOGETHER = 4  # moves evaluated together
DRAWN, AGAIN = 150, 75  # moves drawn from a new placement, and in each further round from the same one
KEPT, MOST_KEPT = 24, 400  # of the best moves that are left: so many for the next placement, and for the next round
ALIKE = 0.7  # moves that share more of their changes than this are not evaluated together
CERTAIN = 100.0  # more than any estimate

Rank = Callable[[Float32[np.ndarray, "moves features"]], Float[np.ndarray, " moves"]]  # the higher, the sooner
Found = Callable[[Score], object]


def path_estimate(rows: Float32[np.ndarray, "moves features"]) -> Float64[np.ndarray, " moves"]:
    """By how much the critical chain gets shorter, less what the longest path through the moved ops then exceeds the step by."""
    busy = np.maximum(rows[:, columns.LOAD_AFTER], rows[:, columns.CHANNEL_AFTER])
    estimate = -(rows[:, columns.PATH_BEYOND] + rows[:, columns.CHAIN_MORE]).astype(np.float64)
    return estimate - CERTAIN * ((busy >= 1) & (rows[:, columns.OVERFLOW_BEFORE] == 0))


class _Here(NamedTuple):
    """The placement at hand."""

    device: Devices
    score: Score
    situation: Situation


class _Pool(NamedTuple):
    """Moves that are not evaluated yet, with their features, from the placement at hand."""

    moves: Drawn
    rows: Float32[np.ndarray, "moves features"]


def ranked_climb(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
    rank: Rank = path_estimate,
    found: Found = lambda score: None,
) -> Placement:
    """The best placement that the search evaluates; it respects `allowed` and is never worse than a `start` that does.

    The evaluator must give timelines. A start that needs a missing link is returned as it is. Raises ValueError where a unit is allowed on
    no device.
    """
    around = neighbourhood(problem)
    scratch, here = work(around.terrain), around.start(start)
    (result,) = evaluate(problem, [around.placement(here, schedule)], timeline=True)
    budget.spent += 1
    if result.timeline is None:
        return around.placement(here, schedule)
    at = _Here(here, score(problem, result), situation(problem, around, here, result))
    seen, pool, union = {int(hash_of(here))}, None, None
    while around.grains and (count := budget.allows(TOGETHER)):
        pool = _filled(around, at, pool, seen, scratch, generator)
        order = np.argsort(-rank(pool.rows), kind="stable")
        chosen = distinct(pool.moves, order, count - (union is not None), ALIKE)
        tried = [*([] if union is None else [union]), *(pool.moves.after(int(move), at.device) for move in chosen)]
        if not tried:
            break
        seen |= {int(hash_of(device)) for device in tried}
        results = evaluate(problem, [around.placement(device, schedule) for device in tried], timeline=True, limit_ns=at.score.limit_ns)
        budget.spent += len(tried)
        scores = [score(problem, result) for result in results]
        left = order[~np.isin(order, chosen)]
        first = min(range(len(tried)), key=scores.__getitem__)
        if scores[first] <= at.score and results[first].timeline is not None:
            better = sorted(zip(scores, tried, strict=True), key=itemgetter(0))
            union = _union(at.device, [device for reached, device in better if reached < at.score], seen)
            if scores[first] < at.score:
                found(scores[first])
            at = _Here(tried[first], scores[first], situation(problem, around, tried[first], results[first]))
            pool = _seen_from(around, at, some(pool.moves, left[:KEPT]), scratch)
        else:
            union, pool = None, _Pool(some(pool.moves, left[:MOST_KEPT]), pool.rows[left[:MOST_KEPT]])
    return around.placement(at.device, schedule)


def _filled(around: Neighbourhood, at: _Here, pool: _Pool | None, seen: set[int], scratch: Work, generator: np.random.Generator) -> _Pool:
    """The pool with new moves: none leads to a placement that was evaluated, and no two lead to the same one."""
    where = guide(around, at.device, at.situation.peak_bytes.astype(np.int64), at.situation.waited_ns)
    drawn = draw(around, at.device, where, generator, DRAWN if pool is None else AGAIN)
    old = [] if pool is None else pool.moves.change.tolist()
    here = int(hash_of(at.device))
    new = unknown([here ^ change for change in [*old, *drawn.change.tolist()]], seen)
    drawn = some(drawn, np.flatnonzero(new[len(old) :]))
    added = _Pool(drawn, features(around.terrain, at.situation, drawn, scratch))
    if pool is None:
        return added
    kept = np.flatnonzero(new[: len(old)])
    return _Pool(together(some(pool.moves, kept), added.moves), np.concatenate([pool.rows[kept], added.rows]))


def _seen_from(around: Neighbourhood, at: _Here, moves: Drawn, scratch: Work) -> _Pool:
    moves = from_there(moves, at.device)
    return _Pool(moves, features(around.terrain, at.situation, moves, scratch))


def _union(device: Devices, better: list[Devices], seen: set[int]) -> Devices | None:
    """All improvements together, the best one last so that it prevails; None for fewer than two, and where it was evaluated."""
    together = device.copy()
    for improved in reversed(better):
        together = np.where(improved != device, improved, together)
    return together if len(better) > 1 and int(hash_of(together)) not in seen else None
