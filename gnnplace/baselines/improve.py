"""A placement from nothing but own evaluations: random list schedules, then a climb over ranked moves from the fastest of them.

No other planner's placement is a start, a sample or a feature. With a learned ranking this is how the policy `improver` places a graph
that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

EVALUATIONS = 64
LISTS, FOR_LISTS = 23, 0.375  # list schedules at most, and their share of the evaluations; the climb looks at the fastest again


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
    """The best placement that it evaluates, from `start` or, without one, from random list schedules.

    Raises ValueError where a unit is allowed on no device.
    """
    if start is None:
        count = LISTS if budget.evaluations is None else min(LISTS, int(FOR_LISTS * budget.evaluations))
        source = list_schedules(problem, generator, schedule)
        start = fastest(problem, [source() for _ in range(max(1, count))], evaluate) if count > 1 else source()
        budget.spent += count if count > 1 else 0
    if not budget.allows(1):
        return start
    return ranked_climb(problem, evaluate, generator, start=start, budget=budget, schedule=schedule, ranks=ranks, drawn=drawn)
