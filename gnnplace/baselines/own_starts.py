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
from gnnplace.result import FEASIBLE, Evaluator, Score, StepResult, score

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
    starts, evaluate = OwnStarts(problem, generator, schedule), budget.metered(evaluate)
    if count is None:
        count = STARTS if budget.evaluations is None else min(STARTS, int(FOR_STARTS * budget.evaluations))
    if count < 2:
        return starts.random(0).placement
    best = _evaluated(evaluate, [starts.random(number) for number in range(min(RANDOM, count))], starts)
    last = count - (OTHERS if has_stages(problem) and schedule is None else 0)
    for number in range(RANDOM, last):
        if budget.allows(1):
            start = starts.random(number) if best.precedent is None else starts.fed_back(best.precedent)
            best = min(best, _evaluated(evaluate, [start], starts, best.score.limit_ns), key=itemgetter(0))
    for start in starts.reordered(best, budget.allows(count - max(RANDOM, last))):
        best = min(best, _evaluated(evaluate, [start], starts, best.score.limit_ns), key=itemgetter(0))
    if best.score.feasibility == FEASIBLE:
        return best.placement
    return Repair(problem, evaluate, REPAIRED, budget=budget).relieved(best.placement)


class OwnStart(NamedTuple):
    """A start, and the settings of the list schedule that it is or that may feed it back."""

    settings: Settings
    placement: Placement


class EvaluatedStart(NamedTuple):
    """A start that is evaluated with its timeline, and what a list schedule feeds back of it."""

    score: Score
    placement: Placement
    result: StepResult
    settings: Settings
    precedent: Precedent | None


@dataclass(frozen=True, eq=False)
class OwnStarts:
    """Draws starts of one problem, without a `schedule` in the order whose turn it is.

    Raises ValueError if a unit is allowed on no device.
    """

    problem: Problem
    generator: np.random.Generator
    schedule: Schedule | None

    def random(self, number: int) -> OwnStart:
        """Random start `number`: a list schedule or, for most numbers of a step of several micro-batches, stages."""
        settings = drawn(self.generator)
        turn = number % len(ORDERS) if has_stages(self.problem) else 0
        order = self.schedule or ORDERS[turn]
        if turn:
            return OwnStart(settings, stage_placement(self.problem, self.generator, order))
        return OwnStart(settings, list_schedule(self.problem, settings, self.generator, order))

    def fed_back(self, before: Precedent) -> OwnStart:
        """A list schedule that feeds back a precedent."""
        feedback = drawn_feedback(self.generator, before.settings)
        return OwnStart(feedback.settings, fed_back_list(self.problem, feedback, before, self.generator))

    def reordered(self, best: EvaluatedStart, count: int) -> list[OwnStart]:
        """The best start in others of the orders."""
        others = sorted(set(ORDERS) - {best.placement.schedule})[: max(0, count)]
        return [OwnStart(best.settings, scheduled(best.placement, order)) for order in others]

    def best(self, starts: Sequence[OwnStart], results: Sequence[StepResult]) -> EvaluatedStart:
        """The best of some starts with their results."""
        scores = [score(self.problem, result) for result in results]
        best = scores.index(min(scores))
        (settings, placement), result = starts[best], results[best]
        before = precedent(self.problem, settings, placement, result)
        return EvaluatedStart(scores[best], placement, result, settings, before)


def _evaluated(
    evaluate: Evaluator, tried: Sequence[OwnStart], starts: OwnStarts, limit_ns: int | None = None
) -> EvaluatedStart:
    """The best of some starts, evaluated together."""
    placements = [each.placement for each in tried]
    return starts.best(tried, evaluate(starts.problem, placements, timeline=True, limit_ns=limit_ns))
