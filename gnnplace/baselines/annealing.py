"""Simulated annealing over placements (Kirkpatrick, Gelatt and Vecchi, 1983). At temperature 0 it is hill climbing.

Each round evaluates a few moves together and accepts or rejects the best of them. No placement is evaluated twice as
long as the search draws new ones. A temperature is a share of the step time and falls geometrically with the used share
of the budget. From time to time the search evaluates the current placement with its timeline, to draw moves where the
step waits (`moves.guide`); this counts as an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from gnnplace.baselines.searching.budget import Budget
from gnnplace.moves.drawing import Guide, draw, guide, hash_of
from gnnplace.moves.neighbourhood import Devices, Neighbourhood, neighbourhood
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, StepResult, score
from gnnplace.schedules.critical_chain import chain_ns

TOGETHER = 4  # moves evaluated together
LOOKS = 50  # evaluations between timelines of the current placement
REDRAWS = 20  # attempts to draw a move to a new placement
HOT, COLD = 2e-3, 2e-5  # temperatures: a step that is longer by this share is accepted with probability 1 / e

Report = Callable[[Score], object]  # called with every new best score


class _Here(NamedTuple):
    """The current placement, its score, and the guide from its step or from the step of a recent placement."""

    device: Devices
    score: Score
    guide: Guide


def annealing(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
    hot: float = HOT,
    report: Report = lambda score: None,
) -> Placement:
    """The best placement that the search evaluates.

    It respects `allowed` and is never worse than a `start` that respects `allowed`. Under `given` and `in-order` the
    priorities of the start stay. `hot` is the first temperature; at 0 the search accepts no worse placement. Raises
    ValueError if a unit is allowed on no device.
    """
    around, metered = neighbourhood(problem), budget.metered(evaluate)
    placed = partial(around.placement, schedule=schedule, priority=scheduled(start, schedule).priority)

    def look(device: Devices) -> _Here:
        (result,) = metered(problem, [placed(device)], timeline=True)
        return _Here(device, score(problem, result), _guide(problem, around, device, result))

    here = best = look(around.start(start))
    seen, looked, fresh = {int(hash_of(here.device))}, budget.spent, True
    while around.grains and (count := budget.allows(TOGETHER)):
        if not fresh and budget.spent - looked >= LOOKS:
            here, looked, fresh = look(here.device), budget.spent, True
            continue
        drawn = _new(around, here, count, seen, generator)
        worst = _worst(here.score, hot * (COLD / HOT) ** min(1.0, budget.used), generator)
        results = metered(problem, [placed(device) for device in drawn], limit_ns=worst.limit_ns)
        scores = [score(problem, result) for result in results]
        least = min(scores)
        if least <= worst:
            here, fresh = _Here(drawn[scores.index(least)], least, here.guide), False
            if least < best.score:
                best = here
                report(least)
    return placed(best.device)


def hill_climb(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
    report: Report = lambda score: None,
) -> Placement:
    """Annealing that accepts no worse placement."""
    return annealing(
        problem, evaluate, generator, start=start, budget=budget, schedule=schedule, hot=0.0, report=report
    )


def _guide(problem: Problem, around: Neighbourhood, device: Devices, result: StepResult) -> Guide:
    timeline, ops = result.timeline, device[around.closure.unit]
    return guide(
        around, device, result.peak_memory_bytes, None if timeline is None else chain_ns(problem, ops, timeline)
    )


def _new(
    around: Neighbourhood, here: _Here, count: int, seen: set[int], generator: np.random.Generator
) -> list[Devices]:
    """New placements. After `REDRAWS` draws without enough of them, placements in `seen` fill up the list."""
    word, placements = int(hash_of(here.device)), list[Devices]()
    for attempt in range(REDRAWS):
        drawn = draw(around, here.device, here.guide, generator, count - len(placements))
        for move, change in enumerate(drawn.change.tolist()):
            if (word ^ change) not in seen or attempt == REDRAWS - 1:
                seen.add(word ^ change)
                placements.append(drawn.after(move, here.device))
        if len(placements) == count:
            break
    return placements


def _worst(here: Score, temperature: float, generator: np.random.Generator) -> Score:
    """The worst score that replaces `here` (Metropolis et al., 1953).

    A step that is longer by the share x is accepted with probability exp(-x / temperature).
    """
    longer = int(temperature * here.step_time_ns * generator.exponential())
    return here._replace(step_time_ns=here.step_time_ns + longer)
