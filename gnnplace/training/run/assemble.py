"""How a learner is put together from a configuration: a policy, what it
learns from, and the teachers whose placements it imitates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gnnplace.config.run import RunConfig
from gnnplace.formats import strict_json
from gnnplace.placement import Placement
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import description
from gnnplace.training.run.description import Described
from gnnplace.training.run.learner import Learner
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Lesson, labels
from gnnplace.training.update.rollout import fastest


def assembled(
    config: RunConfig,
    described: Described,
    problems: Sequence[Problem],
    lesson: Callable[[int, str], Lesson],
    best: Callable[[Sequence[Lesson]], BestPlacements],
    evaluate: Evaluator,
) -> Learner:
    """The learner of a configuration before its first update; `lesson` gives that of a problem's number and label.

    Raises ValueError, before any lesson is made, where the policy can't learn what the configuration asks for.
    """
    learning = Learning(config.training, config.algorithm, config.seed)
    learning.of(described.policy)
    lessons = [lesson(number, label) for number, label in enumerate(labels(problems))]
    document = description.document(config, described.shape, problems)
    return Learner(described.policy, lessons, learning, evaluate, best(lessons), document)


def taught(config: RunConfig, problem: Problem) -> Placement:
    """The fastest feasible placement of the planners that a warm start names, simulated.

    Raises ValueError where none of them finds one.
    """
    placements = [planner(problem) for planner in _teachers(config, problem)]
    placement, result = fastest(list(zip(placements, simulate(problem, placements), strict=True)))
    if result.feasible_ns is None:
        raise ValueError(
            f"warm_start: no planner places {problem.graph.name} on {problem.cluster.name}: {result.infeasible}"
        )
    return placement


def _teachers(config: RunConfig, problem: Problem) -> list[Planner]:
    """The planners that a warm start names; where it names none, all heuristics, which searches are not.

    Raises ValueError for a name that is none.
    """
    named = planners.planners(problem, simulate, config.seed, config.policy.proposes)
    for name in config.training.warm_start.planners:
        if name not in named:
            raise ValueError(f"training.warm_start.planners: {strict_json.unknown('planner', name, tuple(named))}")
    names = config.training.warm_start.planners or [name for name in named if name not in planners.SEARCHES]
    return [planner for name, planner in named.items() if name in names]
