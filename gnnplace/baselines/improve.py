"""A search without other planners: own starts, then a climb over ranked moves from the fastest of them.

No other planner's placement is a start, a sample or a feature. With a learned ranking this is how the policy `improver`
places a graph that it never saw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.baselines.own_starts import own_start
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

EVALUATIONS = 64


def improve(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    budget: Budget,
    start: Placement | None = None,
    schedule: Schedule | None = None,
    ranks: Sequence[Rank] = (path_estimate,),
    drawn: int = DRAWN,
) -> Placement:
    """The best placement that the search evaluates, from `start` or, without one, from its own (`own_start`).

    Without a `schedule` the climb keeps its start's. Raises ValueError if a unit is allowed on no device.
    """
    start = own_start(problem, evaluate, generator, budget, schedule) if start is None else start
    if not budget.allows(1):
        return start
    order = schedule or start.schedule
    return ranked_climb(
        problem, evaluate, generator, start=start, budget=budget, schedule=order, ranks=ranks, drawn=drawn
    )
