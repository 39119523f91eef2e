"""Stages: the modules form a row of items, and each device has one run of it or none (`constraints.Stages`).

There are three ways to stages: the splits of `pipeline` on this row; the stages nearest to any placement, by dynamic
programming; and a local search over cuts and devices. The search draws random changes and accepts a result that is no
worse: a cut moves by 1, 2, 4 or more items, two devices change places, or an idle device takes over a part of a run.
`best_stages` is the portfolio for stages: the best few of some starts, and searches from these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.baselines.annealing import Report
from gnnplace.baselines.pipeline import splits_of_row
from gnnplace.baselines.reorder import reordered
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.baselines.single import fastest, on_each
from gnnplace.compiled import kernel
from gnnplace.constraints import Stages
from gnnplace.placement import Placement, Schedule, rule_of
from gnnplace.portfolio.candidates import BY_SCORE, Candidate
from gnnplace.portfolio.rounds import FOR_ORDER, Progress, best, searched, searched_from_few
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner, Score, known, score

TOGETHER = 4  # changes that are evaluated together
MOST_PLACES = 32  # the nearest stages use only this many devices, those with most work
FOR_CUTS = 0.15  # of the budget that planners leave, for stages as one way to keep modules whole
DRAWS = 200  # a search ends after so many draws in a row without a new placement

Items = Int64[np.ndarray, " items"]  # the device of each item


def planned_stages(
    problem: Problem, evaluate: Evaluator, *, stages: Stages, schedule: Schedule = "critical-path"
) -> Placement:
    """The fastest of the splits of `pipeline` into at most `stages.most` stages, and of single devices.

    Raises ValueError if no stages are allowed.
    """
    legal = _legal(problem, stages)
    rows = [np.full(stages.num_items, device) for device in range(problem.num_devices)]
    rows += [row for row in splits_of_row(problem, stages.item) if len(np.unique(row)) <= stages.most]
    kept = {row.tobytes(): row for row in rows if legal[np.arange(stages.num_items), row].all()}
    if not kept:
        return nearest(problem, stages, Placement(np.zeros(problem.num_ops, np.int32), schedule))
    return fastest(problem, [_placement(stages, row, schedule) for row in kept.values()], evaluate)


def staged(plan: Planner, stages: Stages | None) -> Planner:
    """A planner of the stages nearest to the placement of `plan`; `plan` itself if stages are not binding."""
    if stages is None or not stages.binding:
        return plan

    def nearest_stages(problem: Problem) -> Placement:
        return nearest(problem, stages, plan(problem))

    return nearest_stages


def nearest(problem: Problem, stages: Stages, placement: Placement) -> Placement:
    """The stages that leave the most work on its device, with devices in the order of the mean item of their work.

    The schedule and the priorities stay. Raises ValueError if no stages in this order are allowed.
    """
    if (near := nearest_if_any(problem, stages, placement)) is None:
        raise ValueError("granularity: no run of modules for each device is allowed; a finer granularity may do")
    return near


def nearest_if_any(problem: Problem, stages: Stages, placement: Placement) -> Placement | None:
    """As `nearest`, but None if no stages in this order are allowed."""
    work = np.zeros((stages.num_items, problem.num_devices))
    np.add.at(work, (stages.item, placement.device), problem.time_ns.min(axis=1))
    total = work.sum(axis=0)
    mean = np.where(total > 0, np.arange(stages.num_items) @ work / np.maximum(total, 1), np.inf)
    order = np.argsort(mean, kind="stable")
    order = order[np.sort(np.argsort(-total[order], kind="stable")[:MOST_PLACES])]
    gain = np.where(_legal(problem, stages), work, -np.inf)[:, order]
    place = _best_runs(gain, min(stages.most, len(order)))
    if (place < 0).any():
        return None
    return Placement(order[place][stages.item].astype(np.int32), placement.schedule, placement.priority)


def search_stages(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    stages: Stages,
    budget: Budget,
    report: Callable[[Score], object] = lambda score: None,
) -> Placement:
    """The best stages of a local search from `start`, which must consist of stages; never worse than `start`.

    `report` is called with each better score. The search ends early once it draws nothing new.
    """
    legal, metered = _legal(problem, stages), budget.metered(evaluate)
    here = _row(stages, start)
    best_score = score(problem, metered(problem, [start])[0])
    seen, exhausted = {here.tobytes()}, False
    while not exhausted and (count := budget.allows(TOGETHER)):
        rows = list(islice(_new_rows(here, legal, stages.most, seen, generator), count))
        exhausted = len(rows) < count
        results = metered(problem, [_like(start, stages, row) for row in rows], limit_ns=best_score.limit_ns)
        scores = [score(problem, result) for result in results]
        if scores and min(scores) <= best_score:
            here = rows[scores.index(min(scores))]
            if min(scores) < best_score:
                best_score = min(scores)
                report(best_score)
    return _like(start, stages, here)


def _new_rows(
    here: Items, legal: Bool[np.ndarray, "items devices"], most: int, seen: set[bytes], generator: np.random.Generator
) -> Iterator[Items]:
    """Allowed rows that differ from `here` by a random change and are not in `seen`, to which each is added.

    Ends after `DRAWS` draws in a row without such a row.
    """
    fruitless = 0
    while fruitless < DRAWS:
        row = _changed(here, legal.shape[1], most, generator)
        fruitless += 1
        if row.tobytes() not in seen and legal[np.arange(len(row)), row].all():
            seen.add(row.tobytes())
            fruitless = 0
            yield row


def _changed(row: Items, devices: int, most: int, generator: np.random.Generator) -> Items:
    """The row after a random change, which may leave it as it is."""
    cuts = np.flatnonzero(np.diff(row)) + 1
    bounds = [0, *cuts.tolist(), len(row)]
    way = generator.integers(3)
    changed = row.copy()
    if way == 0 and len(cuts):
        at = int(generator.integers(1, len(bounds) - 1))
        step = 2 ** int(generator.integers(0, max(1, len(row).bit_length() - 2)))
        to = min(max(bounds[at] + int(generator.choice([-step, step])), bounds[at - 1]), bounds[at + 1])
        changed[min(to, bounds[at]) : max(to, bounds[at])] = row[bounds[at] if to < bounds[at] else bounds[at] - 1]
    elif way == 1 and devices > 1:
        first, second = generator.choice(devices, 2, replace=False)
        changed[row == first], changed[row == second] = second, first
    elif len(cuts) + 1 < most and len(idle := np.setdiff1d(np.arange(devices), row)):
        low, high = list(pairwise(bounds))[int(generator.integers(len(cuts) + 1))]
        cut = int(generator.integers(low, high))
        part = slice(low, cut) if generator.integers(2) else slice(cut, high)
        changed[part] = generator.choice(idle)
    return changed


def _legal(problem: Problem, stages: Stages) -> Bool[np.ndarray, "items devices"]:
    """True if a device is allowed for all ops of an item."""
    legal = np.ones((stages.num_items, problem.num_devices), dtype=bool)
    np.logical_and.at(legal, stages.item, problem.allowed)
    return legal


def _row(stages: Stages, placement: Placement) -> Items:
    row = np.empty(stages.num_items, dtype=np.int64)
    row[stages.item] = placement.device
    return row


def _placement(stages: Stages, row: Items, schedule: Schedule) -> Placement:
    return Placement(row[stages.item].astype(np.int32), schedule)


def _like(start: Placement, stages: Stages, row: Items) -> Placement:
    """The placement of a row, with the schedule and the priorities of `start`."""
    return Placement(row[stages.item].astype(np.int32), start.schedule, start.priority)


@kernel
@no_type_check
def _best_runs(gain, most):
    """The place of each item: places ascend, at most `most` are used, and the sum of their gains is the largest.

    All are -1 if no sum is finite.
    """
    items, places = gain.shape
    best = np.full((places + 1, most + 1, items + 1), -np.inf)
    begin = np.full((places + 1, most + 1, items + 1), -1)  # of the run that ends here; -1: the place is not used
    best[0, 0, 0] = 0.0
    for place in range(places):
        best[place + 1] = best[place]
        for used in range(1, most + 1):
            here, start = -np.inf, -1
            for end in range(1, items + 1):
                if best[place, used - 1, end - 1] >= here:
                    here, start = best[place, used - 1, end - 1], end - 1
                here += gain[end - 1, place]
                if here > best[place + 1, used, end]:
                    best[place + 1, used, end], begin[place + 1, used, end] = here, start
    row = np.full(items, -1)
    used, end = np.argmax(best[places, :, items]), items
    if best[places, used, items] == -np.inf:
        return row
    for place in range(places, 0, -1):
        if begin[place, used, end] >= 0:
            start = begin[place, used, end]
            row[start:end] = place - 1
            used, end = used - 1, start
    return row


def best_stages(
    problem: Problem,
    stages: Stages,
    evaluate: Evaluator,
    seed: int,
    budget: Budget,
    schedule: Schedule,
    starts: Mapping[str, Planner],
    progress: Progress,
) -> Candidate:
    """The best stages after searches from the best few of `starts`, which must all plan stages.

    With the schedule `given`, the end of the budget goes to a search for a faster order of ops.
    """
    rule = rule_of(schedule)
    winners = best(problem, Rationed(evaluate, budget), starts, budget, progress)
    before = budget if schedule == rule else budget.until(1 - FOR_ORDER)
    moved = ("cuts", partial(_moved_cuts, evaluate=evaluate, seed=seed, stages=stages))
    winner = searched_from_few(problem, evaluate, winners, moved, moved, before, progress)
    if schedule == rule:
        return winner
    ordered = partial(reordered, seed=seed, evaluate=evaluate)
    return searched(problem, evaluate, winner, "order", ordered, budget, progress)


def with_best_stages(
    problem: Problem,
    evaluate: Evaluator,
    stages: Stages,
    seed: int,
    budget: Budget,
    schedule: Schedule,
    winners: list[Candidate],
    progress: Progress,
) -> list[Candidate]:
    """The winners and the best stages after a search with a share of the budget from the nearest stages; best first."""
    part, stages = budget.left(FOR_CUTS), replace(stages, binding=True)
    near = {each.planner: nearest_if_any(problem, stages, each.placement) for each in winners}
    starts = {name: known(placement) for name, placement in near.items() if placement is not None}
    if nearest_if_any(problem, stages, on_each(problem, [0])[0]) is not None:
        starts = {
            "stages": partial(planned_stages, evaluate=part.metered(evaluate), stages=stages, schedule=schedule)
        } | starts
    if not starts:
        return winners
    winner = best_stages(problem, stages, evaluate, seed, part, schedule, starts, progress)
    return sorted([*winners, winner], key=BY_SCORE)


def _moved_cuts(
    problem: Problem,
    start: Placement,
    budget: Budget,
    report: Report,
    *,
    evaluate: Evaluator,
    seed: int,
    stages: Stages,
) -> Placement:
    return search_stages(
        problem, evaluate, np.random.default_rng(seed), start=start, stages=stages, budget=budget, report=report
    )
