"""The portfolio among stages (`best`, `staged`): the best few of some starts, and searches over cuts and devices that go on from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from gnnplace.baselines.annealing import Found
from gnnplace.baselines.best import BY_SCORE, FOR_ORDER, Progress, Winner, best, searched, searched_from_few
from gnnplace.baselines.reorder import reordered
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.baselines.single import on_each
from gnnplace.baselines.staged import nearest_if_any, planned_stages, search_stages
from gnnplace.constraints import Stages
from gnnplace.placement import Placement, Schedule, rule_of
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner, known

FOR_CUTS = 0.15  # of what planners leave, where modules stay whole


def best_stages(
    problem: Problem,
    stages: Stages,
    evaluate: Evaluator,
    seed: int,
    budget: Budget,
    schedule: Schedule,
    starts: Mapping[str, Planner],
    progress: Progress,
) -> Winner:
    """The best stages that searches of cuts and devices find from the best few of `starts`, which all give stages.

    With the schedule `given`, the last of the budget goes to a search for a faster order of ops.
    """
    rule = rule_of(schedule)
    winners = best(problem, Rationed(evaluate, budget), starts, budget, progress)
    before = budget if schedule == rule else budget.until(1 - FOR_ORDER)
    moved = ("cuts", partial(_cut, evaluate=evaluate, seed=seed, stages=stages))
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
    winners: list[Winner],
    progress: Progress,
) -> list[Winner]:
    """Winners and the best stages that a share of the budget finds, beginning with the nearest to those; best first."""
    part, stages = budget.left(FOR_CUTS), replace(stages, binding=True)
    near = {each.planner: nearest_if_any(problem, stages, each.placement) for each in winners}
    starts = {name: known(placement) for name, placement in near.items() if placement is not None}
    if nearest_if_any(problem, stages, on_each(problem, [0])[0]) is not None:
        starts = {"stages": partial(planned_stages, evaluate=part.metered(evaluate), stages=stages, schedule=schedule)} | starts
    if not starts:
        return winners
    found = best_stages(problem, stages, evaluate, seed, part, schedule, starts, progress)
    return sorted([*winners, found], key=BY_SCORE)


def _cut(problem: Problem, start: Placement, budget: Budget, found: Found, *, evaluate: Evaluator, seed: int, stages: Stages) -> Placement:
    return search_stages(problem, evaluate, np.random.default_rng(seed), start=start, stages=stages, budget=budget, found=found)
