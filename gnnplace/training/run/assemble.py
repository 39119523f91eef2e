"""The assembly of a learner from a configuration: its policy, its lessons, and the teachers that it imitates."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lightning import Callback, Trainer

from gnnplace.config.run import RunConfig, SelectionConfig
from gnnplace.formats import strict_json
from gnnplace.placement import Placement
from gnnplace.policies.protocol import Policy
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import description
from gnnplace.training.run.description import Described
from gnnplace.training.run.fit import fit
from gnnplace.training.run.learner import Learner
from gnnplace.training.run.zero_shot import ZeroShot, of_policy
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Exam, Lesson, labels, reference_ns
from gnnplace.training.update.rollout import fastest


def assembled(
    config: RunConfig,
    described: Described,
    problems: Sequence[Problem],
    lesson: Callable[[int, str], Lesson],
    best: Callable[[Sequence[Lesson]], BestPlacements],
    evaluate: Evaluator,
) -> Learner:
    """The learner of a configuration before its first update; `lesson` makes the lesson of a number and a label.

    Raises ValueError, before any lesson is made, if the policy can't learn what the configuration asks for.
    """
    learning = Learning(config.training, config.algorithm, config.seed)
    policy = described.policy
    assert isinstance(policy, Policy)
    learning.of(policy)
    lessons = [lesson(number, label) for number, label in enumerate(labels(problems))]
    document = description.document(config, described.shape, problems)
    return Learner(policy, lessons, learning, evaluate, best(lessons), document)


def taught(config: RunConfig, problem: Problem) -> Placement:
    """The fastest feasible placement of the planners that a warm start names, simulated.

    Raises ValueError if none of them finds one.
    """
    placements = [planner(problem) for planner in _teachers(config, problem)]
    placement, result = fastest(list(zip(placements, simulate(problem, placements), strict=True)))
    if result.feasible_ns is None:
        raise ValueError(
            f"warm_start: no planner places {problem.graph.name} on {problem.cluster.name}: {result.infeasible}"
        )
    return placement


def _teachers(config: RunConfig, problem: Problem) -> list[Planner]:
    """The planners that a warm start names; all heuristics, but no searches, if it names none.

    Raises ValueError for a name that is none.
    """
    named = planners.planners(problem, simulate, config.seed, config.policy.proposes)
    for name in config.training.warm_start.planners:
        if name not in named:
            raise ValueError(f"training.warm_start.planners: {strict_json.unknown('planner', name, tuple(named))}")
    names = config.training.warm_start.planners or [name for name in named if name not in planners.SEARCHES]
    return [planner for name, planner in named.items() if name in names]


Teachers = Sequence[Placement | None]


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained policy: a planner of any problem, with the best placements of its training problems."""

    config: RunConfig
    learner: Learner
    trainer: Trainer | None = None

    @property
    def policy(self) -> ZeroShot:
        """The policy as a planner: its greedy placement, by weights alone."""
        return of_policy(self.config.policy, self.learner.policy)

    @property
    def best(self) -> tuple[Placement | None, ...]:
        """The fastest feasible placement of each training problem, None without any."""
        return tuple(None if best is None else best.placement for best in self.learner.best.by_problem)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, atomically: `zero_shot.planner` reads it.

        Raises ValueError if nothing was trained.
        """
        if self.trainer is None:
            raise ValueError("nothing was trained, so there is no checkpoint")
        self.trainer.save_checkpoint(os.fspath(path))


def untrained(
    config: RunConfig,
    problems: Sequence[Problem],
    teachers: Teachers | None = None,
    evaluate: Evaluator = simulate,
) -> Trained:
    """The learner of a configuration on these problems before its first update.

    `teachers` are the placements that a warm start imitates; by default those of the best planners that the
    configuration names.
    """
    if teachers is not None and len(teachers) != len(problems):
        raise ValueError(
            f"teachers: {len(teachers)} placements of {len(problems)} problems; there is one of each, or None"
        )
    names = tuple((problem.graph.name, problem.cluster.name) for problem in problems)
    config = replace(config, problems=names, corpus=SelectionConfig(), dims=(), costs=())
    described = description.described(config, config.policy.shape(problems))

    def lesson(number: int, label: str) -> Lesson:
        problem, imitates = problems[number], bool(config.training.warm_start.updates)
        teacher = teachers[number] if teachers is not None else taught(config, problem) if imitates else None
        return Lesson(problem, reference_ns(problem, simulate), teacher, label)

    return Trained(config, assembled(config, described, problems, lesson, _unwritten, evaluate))


def _unwritten(lessons: Sequence[Lesson]) -> BestPlacements:
    return BestPlacements(len(lessons), lambda *improvement: None)


def train(
    config: RunConfig,
    problems: Sequence[Problem],
    teachers: Teachers | None = None,
    evaluate: Evaluator = simulate,
    callbacks: Sequence[Callback] = (),
    exams: Sequence[Exam] = (),
) -> Trained:
    """`untrained`, then all updates of the configuration, and a greedy placement of each problem at the end."""
    trained = untrained(config, problems, teachers, evaluate)
    trainer = fit(trained.learner, exams, trainer=config.trainer, callbacks=callbacks)
    for number in range(len(problems)):
        trained.learner.decode(number)
    return replace(trained, trainer=trainer)
