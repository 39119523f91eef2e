"""Whole modules near a placement. What places single ops splits modules where it sees no cost, and searches of single ops rarely join
them again; a placement with the same modules whole is sometimes faster, or close to one that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnnplace.baselines.best import BY_SCORE, FEW, Progress, Winner, identity, judged
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.modules import modules


def nearest_modules(problem: Problem, placement: Placement) -> Placement:
    """Each module on the device that has most of its work (in ns of the fastest device), of those that are allowed for all its ops.

    A module for which there is none stays as it is; so do the schedule and the priorities.
    """
    made = modules(problem.graph)
    work = np.zeros((made.num_modules, problem.num_devices), dtype=np.int64)
    np.add.at(work, (made.module, placement.device), problem.time_ns.min(axis=1))
    legal = np.ones(work.shape, dtype=bool)
    np.logical_and.at(legal, made.module, problem.allowed)
    most = np.where(legal, work, -1).argmax(axis=1)
    whole = np.flatnonzero(legal.any(axis=1))
    return replace(placement, device=np.where(np.isin(made.module, whole), most[made.module], placement.device).astype(np.int32))


def with_nearest_modules(
    problem: Problem, evaluate: Evaluator, winners: Sequence[Winner], budget: Budget, progress: Progress = lambda planner, score: None
) -> list[Winner]:
    """The winners and the nearest whole modules to the best `FEW`, best first; no modules that are worse and take longer than the best.

    Those that are faster may overflow a memory: repairs follow. The budget meters the evaluator, which is not asked of modules that
    are whole already.
    """
    first, near, known = winners[0].score, list[Winner](), {identity(each.placement) for each in winners}
    for winner in winners[:FEW]:
        placement = nearest_modules(problem, winner.placement)
        if identity(placement) not in known and budget.allows(1):
            known.add(identity(placement))
            near.append(judged(problem, evaluate, f"modules of {winner.planner}", placement))
            progress(near[-1].planner, near[-1].score)
    promising = [each for each in near if each.score <= first or each.score.step_time_ns <= first.step_time_ns]
    return sorted([*winners, *promising], key=BY_SCORE)
