"""Teachers: the placements of planners that a warm start imitates."""

from __future__ import annotations

from collections.abc import Sequence

from gnnplace import planners
from gnnplace.config.run import RunConfig
from gnnplace.formats import strict_json
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.rollout import fastest


def teacher(problem: Problem, asked: Sequence[Planner], evaluate: Evaluator) -> Placement:
    """The fastest feasible placement of the planners that are `asked`. Raises ValueError where none of them finds one."""
    placements = [planner(problem) for planner in asked]
    placement, result = fastest(list(zip(placements, evaluate(problem, placements), strict=True)))
    if result.feasible_ns is None:
        raise ValueError(f"warm_start: no planner places {problem.graph.name} on {problem.cluster.name}: {result.infeasible}")
    return placement


def named_planners(config: RunConfig, problem: Problem) -> list[Planner]:
    """The planners that a warm start names; where it names none, all heuristics, which searches are not.

    Raises ValueError for a name that is none.
    """
    named = planners.planners(problem, simulate, config.seed, config.policy.proposes)
    for name in config.training.warm_start.planners:
        if name not in named:
            raise ValueError(f"training.warm_start.planners: {strict_json.unknown('planner', name, tuple(named))}")
    names = config.training.warm_start.planners or [name for name in named if name not in planners.SEARCHES]
    return [planner for name, planner in named.items() if name in names]
