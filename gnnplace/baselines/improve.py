"""A search without other planners: random list schedules, then a climb over ranked moves from the fastest of them.

If no list schedule fits the memories, the one that overflows least is repaired first. No other planner's placement is a
start, a sample or a feature. With a learned ranking this is how the policy `improver` places a graph that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.repairing.repair import Repair, Way
from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, score

EVALUATIONS = 64
# the most list schedules, and their share of the evaluations; the climb evaluates the fastest again
LISTS, FOR_LISTS = 23, 0.375
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
    """The best placement that the search evaluates, from `start` or, without one, from random list schedules.

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
    """The fastest random list schedule; if none fits, the repair of the one that overflows least."""
    source, counted = list_schedules(problem, generator, schedule), budget.metered(evaluate)
    count = LISTS if budget.evaluations is None else min(LISTS, int(FOR_LISTS * budget.evaluations))
    if count < 2:
        return source()
    placements = [source() for _ in range(count)]
    scores = [score(problem, result) for result in counted(problem, placements)]
    best = placements[scores.index(min(scores))]
    if min(scores).feasibility == FEASIBLE:
        return best
    return Repair(problem, counted, REPAIRED, budget=budget).relieved(best)
