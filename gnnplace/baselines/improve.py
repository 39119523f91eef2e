"""A search without other planners: list schedules, then a climb over ranked moves from the fastest of them.

The first lists are random, the others feed back the fastest so far. If no list fits the memories, the one that
overflows least is repaired first. No other planner's placement is a start, a sample or a feature. With a learned
ranking this is how the policy `improver` places a graph that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from gnnplace.baselines.fed_back_lists import Precedent, drawn_feedback, fed_back_list, precedent
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.repairing.repair import Repair, Way
from gnnplace.baselines.sampled_lists import Settings, list_schedule
from gnnplace.baselines.sampled_lists import drawn as drawn_settings
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, Score, score

EVALUATIONS = 64
# the most list schedules, and their share of the evaluations; the climb evaluates the fastest again
LISTS, FOR_LISTS = 23, 0.375
RANDOM = 8  # list schedules, before others feed back the fastest
REPAIRED = Way(least=0.01, just_in_time=False)


def improve(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    budget: Budget,
    start: Placement | None = None,
    schedule: Schedule = "critical-path",
    ranks: Sequence[Rank] = (path_estimate,),
    drawn: int = DRAWN,
) -> Placement:
    """The best placement that the search evaluates, from `start` or, without one, from list schedules (`own_start`).

    Raises ValueError if a unit is allowed on no device.
    """
    start = own_start(problem, evaluate, generator, budget, schedule) if start is None else start
    if not budget.allows(1):
        return start
    return ranked_climb(
        problem, evaluate, generator, start=start, budget=budget, schedule=schedule, ranks=ranks, drawn=drawn
    )


def own_start(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    budget: Budget,
    schedule: Schedule = "critical-path",
) -> Placement:
    """The fastest list schedule: some are random, the others feed back the fastest so far.

    While none is feasible, all are random. If none fits, the one that overflows least is repaired.
    """
    lists = _Lists(problem, budget.metered(evaluate), generator, schedule)
    count = LISTS if budget.evaluations is None else min(LISTS, int(FOR_LISTS * budget.evaluations))
    if count < 2:
        return lists.random().placement
    best = lists.best([lists.random() for _ in range(min(RANDOM, count))])
    for _ in range(count - RANDOM):
        if not budget.allows(1):
            break
        drawn = lists.random() if best.precedent is None else lists.fed_back(best.precedent)
        best = min(best, lists.best([drawn], best.score.limit_ns), key=itemgetter(0))
    if best.score.feasibility == FEASIBLE:
        return best.placement
    return Repair(problem, lists.evaluate, REPAIRED, budget=budget).relieved(best.placement)


class _Drawn(NamedTuple):
    """A list schedule and its settings."""

    settings: Settings
    placement: Placement


class _Evaluated(NamedTuple):
    """A list schedule that is evaluated."""

    score: Score
    placement: Placement
    precedent: Precedent | None


@dataclass(frozen=True, eq=False)
class _Lists:
    """Draws list schedules of one problem and evaluates them."""

    problem: Problem
    evaluate: Evaluator
    generator: np.random.Generator
    schedule: Schedule

    def random(self) -> _Drawn:
        settings = drawn_settings(self.generator)
        return _Drawn(settings, list_schedule(self.problem, settings, self.generator, self.schedule))

    def fed_back(self, before: Precedent) -> _Drawn:
        feedback = drawn_feedback(self.generator, before.settings)
        placement = fed_back_list(self.problem, feedback, before, self.generator, self.schedule)
        return _Drawn(feedback.settings, placement)

    def best(self, lists: Sequence[_Drawn], limit_ns: int | None = None) -> _Evaluated:
        """The best of some lists, evaluated together with their timelines."""
        placements = [each.placement for each in lists]
        results = self.evaluate(self.problem, placements, timeline=True, limit_ns=limit_ns)
        scores = [score(self.problem, result) for result in results]
        best = scores.index(min(scores))
        before = precedent(self.problem, lists[best].settings, placements[best], results[best])
        return _Evaluated(scores[best], placements[best], before)
