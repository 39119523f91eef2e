"""The losses of the phases: clusterings, a teacher's placements, a policy's own phases, and reinforcement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, assert_never, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnnplace.baselines.own_starts import own_start
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import single_gpu
from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.placement import Placement
from gnnplace.policies.protocol import Continues, Groups, Imitates, Objective, Policy, Practice
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.training.update import metrics, processes
from gnnplace.training.update.algorithms.imitate import Choices, imitate, imitate_groups, self_imitate
from gnnplace.training.update.algorithms.loss import EntropyBonus, ppo, reinforce, value_loss, weight
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.credit import Average
from gnnplace.training.update.data import BROUGHT, Work, sample_generator
from gnnplace.training.update.experience import Experience, gather
from gnnplace.training.update.learning import Learning, minibatch
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import Scored, best_sample, replay

FIRST_DRAWS = 300  # the purpose of draws by which a policy prepares its own phases


@runtime_checkable
class PhaseLoss(Protocol):
    """The loss of the problem at one place of a batch, and its metrics."""

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]: ...

    def nothing_counts(self) -> bool:
        """Whether the present update has nothing to learn from; it must change nothing then."""
        ...


NatsOf = Callable[[Problem, Choices], Float[Tensor, ""]]


@dataclass(eq=False)
class Imitation:
    """The nats of given choices; the choices are computed once for each problem."""

    lessons: Sequence[Lesson]
    name: str
    choices_of: Callable[[Lesson], Choices]
    nats_of: NatsOf
    choices: dict[int, Choices] = field(default_factory=dict)  # by problem

    def nothing_counts(self) -> bool:
        return False

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        problem = batch.problems[place]
        lesson = self.lessons[problem]
        if problem not in self.choices:
            self.choices[problem] = self.choices_of(lesson)
        nats = self.nats_of(lesson.problem, self.choices[problem])
        return nats, metrics.labelled(lesson, {f"{self.name}_nats": float(nats.detach())})


def imitation(policy: Policy, lessons: Sequence[Lesson]) -> dict[str, PhaseLoss]:
    """The losses of the phases in which this policy can imitate: clusterings, teachers' placements."""
    losses: dict[str, PhaseLoss] = {}
    if isinstance(policy, Groups):
        losses["grouping"] = Imitation(
            lessons, "grouping", partial(_clustering, policy), partial(imitate_groups, policy)
        )
    if isinstance(policy, Imitates):
        losses["warm_start"] = Imitation(lessons, "warm_start", partial(_taught, policy), partial(imitate, policy))
    return losses


def _clustering(policy: Groups, lesson: Lesson) -> Choices:
    return policy.grouping_target(lesson.problem)


def _taught(policy: Imitates, lesson: Lesson) -> Choices:
    assert lesson.teacher is not None, "a warm start has a teacher for each problem"
    return policy.choices(lesson.problem, lesson.teacher)


@dataclass(eq=False)
class Reinforcement:
    """An algorithm's loss on samples.

    The first pass of an update draws them; later passes score them again.
    """

    policy: Policy
    lessons: Sequence[Lesson]
    learning: Learning
    evaluate: Evaluator
    best: BestPlacements
    average: Average
    experience: dict[int, Experience] = field(default_factory=dict)  # of the present update, by its problem's place

    def nothing_counts(self) -> bool:
        """Whether samples were drawn and none of them counts."""
        return bool(self.experience) and not any(experience.number for experience in self.experience.values())

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        problem = batch.problems[place]
        lesson, algorithm, progress = (
            self.lessons[problem],
            self.learning.algorithm,
            batch.phase.progress(batch.update),
        )
        if batch.first:
            self.experience[place] = self._gather(batch, place)
        experience = self.experience[place]
        rows = minibatch(batch.turn, algorithm.minibatches, experience.tape.samples)
        scored = replay(self.policy, lesson.problem, experience.tape, experience.episode, rows)
        loss = self._of_samples(scored, experience, rows, progress) + self._of_best(problem, experience, progress)
        values = metrics.of_samples(lesson, experience, scored, self.best.by_problem[problem]) if batch.last else {}
        return loss, values

    def _gather(self, batch: Work, place: int) -> Experience:
        problem, training, seed = batch.problems[place], self.learning.training, self.learning.seed
        so_far = self.best.by_problem[problem]
        if isinstance(self.policy, Continues) and so_far is not None:
            self.policy.continue_from(self.lessons[problem].problem, so_far.placement)
        generator, update = sample_generator(seed, batch.update, place), batch.update - batch.phase.first
        experience = gather(
            self.policy, self.lessons[problem], problem, self.evaluate, training, update, generator, self.average
        )
        best = best_sample(experience.episode)
        self.best.offer_all(
            problem, best.placement, best.result, "sample", experience.tape.choices(best.sample)[: best.step + 1]
        )
        return experience

    def _of_samples(self, scored: Scored, experience: Experience, rows: slice, progress: float) -> Float[Tensor, ""]:
        """The mean loss over the samples that count: of all processes, or of this minibatch."""
        algorithm, explore, credit = (
            self.learning.algorithm,
            self.learning.training.exploration,
            experience.credit.of(rows),
        )
        bonus = EntropyBonus(explore.entropy(progress), explore.entropy_of)
        number = experience.number if algorithm.minibatches == 1 else None
        each = weight(algorithm.decisions, sum(scored.tape.decisions_by_step()))
        match algorithm:
            case ReinforceConfig():
                loss = reinforce(scored, credit, bonus, number) * each
            case PpoConfig():
                loss = ppo(scored, experience.before[rows], credit, algorithm, bonus, number) * each
                loss = loss + algorithm.value * value_loss(scored, credit, number)
            case _:
                assert_never(algorithm)
        return loss * processes.number()

    def _of_best(self, problem: int, experience: Experience, progress: float) -> Float[Tensor, ""] | float:
        """The weighted nats of the best own sample so far; the weight grows from 0."""
        algorithm, best = self.learning.algorithm, self.best.by_problem[problem]
        if not (algorithm.self_imitation and experience.number and best and best.choices):
            return 0.0
        nats = self_imitate(
            self.policy, self.lessons[problem].problem, best.choices, self.evaluate, algorithm.decisions == "sum"
        )
        return algorithm.self_imitation * progress * nats


@dataclass(eq=False)
class Brought:
    """The loss of a phase that the policy brings; 0 where a problem teaches nothing."""

    objective: Objective
    policy: Policy
    lessons: Sequence[Lesson]
    seed: int
    evaluate: Evaluator
    teaches: dict[int, bool] = field(default_factory=dict)  # of the present update, by its problem's place

    def prepare(self) -> None:
        """Prepares the phase, once before the first update."""
        practice = Practice(self.evaluate, start, np.random.default_rng([self.seed, FIRST_DRAWS]))
        self.objective.prepare([lesson.problem for lesson in self.lessons], practice)

    def nothing_counts(self) -> bool:
        """Whether no process has a problem that teaches something in this update. Every process has to call it."""
        return bool(self.teaches) and int(processes.gathered(torch.tensor([[sum(self.teaches.values())]])).sum()) == 0

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        lesson = self.lessons[batch.problems[place]]
        generator = np.random.default_rng([self.seed, BROUGHT, batch.update, place, processes.rank()])
        loss, values = self.objective.loss(lesson.problem, Practice(self.evaluate, start, generator))
        self.teaches[place] = loss is not None
        if loss is None:
            loss = sum((parameter.sum() for parameter in self.policy.parameters()), torch.zeros(())) * 0.0
        return loss, metrics.labelled(lesson, dict(values))


def start(problem: Problem, evaluate: Evaluator, generator: np.random.Generator, lists: int) -> Placement:
    """A `protocol.Starts`: the fastest of 1 to `lists` starts of the search's own; 0: the fastest device alone."""
    if not lists:
        return single_gpu(problem, evaluate)
    count = int(generator.integers(1, lists + 1))
    return own_start(problem, evaluate, generator, Budget(evaluations=count), count=count)
