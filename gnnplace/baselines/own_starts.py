"""A search's own starts: random ones, then list schedules that feed back the fastest so far.

The random ones are list schedules and, in a step of several micro-batches, random stages in several orders. If none
fits the memories, the one that overflows least is repaired. None is another planner's placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from gnnplace.baselines.fed_back_lists import Precedent, drawn_feedback, fed_back_list, precedent
from gnnplace.baselines.repairing.repair import Repair, Way
from gnnplace.baselines.sampled_lists import Settings, drawn, list_schedule
from gnnplace.baselines.sampled_stages import has_stages, stage_placement
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, Score, score

# the most starts, and their share of the evaluations; a climb evaluates the fastest again
STARTS, FOR_STARTS = 23, 0.375
RANDOM = 8  # starts, before list schedules feed back the fastest
# the orders of random starts of a step of several micro-batches, in turn; of each turn all but the first are of stages
ORDERS: tuple[Schedule, ...] = ("critical-path", "memory", "fifo", "memory")
OTHERS = 2  # orders in which the fastest is tried last
REPAIRED = Way(least=0.01, just_in_time=False)


def own_start(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    budget: Budget,
    schedule: Schedule | None = None,
    count: int | None = None,
) -> Placement:
    """The fastest of `count` starts, by default a share of the budget: some are random, others feed back the fastest.

    Without a `schedule` all are under the critical path, or in a step of several micro-batches under `ORDERS` in turn,
    and the last ones are the fastest under the other orders. While none is feasible, all are random. If none fits, the
    one that overflows least is repaired.
    """
    starts = _Starts(problem, budget.metered(evaluate), generator, schedule)
    if count is None:
        count = STARTS if budget.evaluations is None else min(STARTS, int(FOR_STARTS * budget.evaluations))
    if count < 2:
        return starts.random(0).placement
    best = starts.best([starts.random(number) for number in range(min(RANDOM, count))])
    last = count - (OTHERS if has_stages(problem) and schedule is None else 0)
    for number in range(RANDOM, last):
        if budget.allows(1):
            start = starts.random(number) if best.precedent is None else starts.fed_back(best.precedent)
            best = min(best, starts.best([start], best.score.limit_ns), key=itemgetter(0))
    for start in starts.reordered(best, budget.allows(count - max(RANDOM, last))):
        best = min(best, starts.best([start], best.score.limit_ns), key=itemgetter(0))
    if best.score.feasibility == FEASIBLE:
        return best.placement
    return Repair(problem, starts.evaluate, REPAIRED, budget=budget).relieved(best.placement)


class _Start(NamedTuple):
    """A start, and the settings of the list schedule that it is or that may feed it back."""

    settings: Settings
    placement: Placement


class _Evaluated(NamedTuple):
    """A start that is evaluated."""

    score: Score
    settings: Settings
    placement: Placement
    precedent: Precedent | None


@dataclass(frozen=True, eq=False)
class _Starts:
    """Draws starts of one problem and evaluates them."""

    problem: Problem
    evaluate: Evaluator
    generator: np.random.Generator
    schedule: Schedule | None

    def random(self, number: int) -> _Start:
        settings = drawn(self.generator)
        return _Start(settings, random_start(self.problem, number, settings, self.generator, self.schedule))

    def fed_back(self, before: Precedent) -> _Start:
        feedback = drawn_feedback(self.generator, before.settings)
        placement = fed_back_list(self.problem, feedback, before, self.generator)
        return _Start(feedback.settings, placement)

    def reordered(self, best: _Evaluated, count: int) -> list[_Start]:
        """The best start in others of the orders."""
        others = sorted(set(ORDERS) - {best.placement.schedule})[: max(0, count)]
        return [_Start(best.settings, scheduled(best.placement, order)) for order in others]

    def best(self, starts: Sequence[_Start], limit_ns: int | None = None) -> _Evaluated:
        """The best of some starts, evaluated together with their timelines."""
        placements = [each.placement for each in starts]
        results = self.evaluate(self.problem, placements, timeline=True, limit_ns=limit_ns)
        scores = [score(self.problem, result) for result in results]
        best = scores.index(min(scores))
        before = precedent(self.problem, starts[best].settings, placements[best], results[best])
        return _Evaluated(scores[best], starts[best].settings, placements[best], before)


def random_start(
    problem: Problem, number: int, settings: Settings, generator: np.random.Generator, schedule: Schedule | None
) -> Placement:
    """Random start `number`: a list schedule or, for most numbers of a step of several micro-batches, stages.

    Without a `schedule` in the order whose turn it is. Raises ValueError if a unit is allowed on no device.
    """
    turn = number % len(ORDERS) if has_stages(problem) else 0
    order = schedule or ORDERS[turn]
    return stage_placement(problem, generator, order) if turn else list_schedule(problem, settings, generator, order)
