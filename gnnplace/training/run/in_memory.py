"""Training in memory: a policy of a configuration on given problems,
without a run folder; nothing is written until it is saved.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lightning import Callback, Trainer

from gnnplace.config.run import RunConfig, SelectionConfig
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import description
from gnnplace.training.run.assemble import assembled, taught
from gnnplace.training.run.fit import fit
from gnnplace.training.run.learner import Learner
from gnnplace.training.run.zero_shot import ZeroShot, of_policy
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.lesson import Exam, Lesson, reference_ns

Teachers = Sequence[Placement | None]


@dataclass(frozen=True, eq=False)
class Trained:
    """A policy that was trained: a planner of any problem, and the best placements that it found for its own."""

    config: RunConfig
    learner: Learner
    trainer: Trainer | None = None

    @property
    def policy(self) -> ZeroShot:
        """The policy as a planner: its greedy placement, by weights alone."""
        return of_policy(self.config.policy, self.learner.policy)

    @property
    def best(self) -> tuple[Placement | None, ...]:
        """The fastest feasible placement that training found for each problem, None where it found none."""
        return tuple(None if best is None else best.placement for best in self.learner.best.found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, atomically: `zero_shot.planner` reads it.

        Raises ValueError where nothing was trained.
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

    `teachers` are what a warm start imitates; where they are not given, the best of the planners that the configuration
    names.
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
