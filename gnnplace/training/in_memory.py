"""Training in memory: a policy of a configuration on given problems, without a run folder; nothing is written until it is saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lightning import Callback

from gnnplace.config.run import RunConfig
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate
from gnnplace.training import description
from gnnplace.training.best import BestPlacements
from gnnplace.training.checkpoint import save_checkpoint
from gnnplace.training.data import Lesson, reference_ns
from gnnplace.training.fit import fit
from gnnplace.training.imitation import named_planners, teacher
from gnnplace.training.learner import Learner
from gnnplace.training.zero_shot import ZeroShot, of_policy

Teachers = Sequence[Placement | None]


@dataclass(frozen=True, eq=False)
class Trained:
    """A policy that was trained: a planner of any problem, and the best placements that it found for its own."""

    config: RunConfig
    learner: Learner
    description: Mapping[str, Any]

    @property
    def policy(self) -> ZeroShot:
        """The policy as a planner: its greedy placement, by weights alone."""
        return of_policy(self.config, self.learner.policy)

    @property
    def best(self) -> tuple[Placement | None, ...]:
        """The fastest feasible placement that training found for each problem, None where it found none."""
        return tuple(None if best is None else best.placement for best in self.learner.best.found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, atomically: `zero_shot.planner` reads it."""
        save_checkpoint(path, self.learner, self.description)


def untrained(config: RunConfig, problems: Sequence[Problem], teachers: Teachers | None = None, evaluate: Evaluator = simulate) -> Trained:
    """The learner of a configuration on these problems before its first update.

    `teachers` are what a warm start imitates; where they are not given, the best of the planners that the configuration names.
    """
    names = tuple((problem.graph.name, problem.cluster.name) for problem in problems)
    described = description.described(replace(config, problems=names), config.policy.shape(problems))
    taught = [_teacher(config, problem) for problem in problems] if teachers is None else teachers
    lessons = [Lesson(problem, reference_ns(problem, simulate), known) for problem, known in zip(problems, taught, strict=True)]
    best = BestPlacements(len(lessons), lambda *found: None)
    learner = Learner(described.policy, lessons, config.training, config.seed, evaluate, best)
    return Trained(described.config, learner, description.document(described, problems))


def train(
    config: RunConfig,
    problems: Sequence[Problem],
    teachers: Teachers | None = None,
    evaluate: Evaluator = simulate,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """`untrained`, then all updates of the configuration, and a greedy placement of each problem at the end."""
    trained = untrained(config, problems, teachers, evaluate)
    fit(trained.learner, lambda learner: None, callbacks=callbacks)
    for number in range(len(problems)):
        trained.learner.decode(number)
    return trained


def _teacher(config: RunConfig, problem: Problem) -> Placement | None:
    if not config.training.warm_start.updates:
        return None
    return teacher(problem, named_planners(config, problem), simulate)
