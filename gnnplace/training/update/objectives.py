"""What the optimiser descends, a loss a phase: clusterings, a teacher's placements, what a policy brings, or the
policy's own samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, assert_never, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.baselines.single import fastest, single_gpu
from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.placement import Placement
from gnnplace.policies.protocol import Continues, Objective, Practice
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.training.update import metrics, processes
from gnnplace.training.update.algorithms.imitate import Choices, imitate, imitate_groups, self_imitate
from gnnplace.training.update.algorithms.loss import EntropyBonus, ppo, reinforce, weight
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.credit import Average
from gnnplace.training.update.data import BROUGHT, Work, sample_generator
from gnnplace.training.update.experience import Experience, gather
from gnnplace.training.update.learning import Learning, minibatch
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import Scored, best_sample, replay

FIRST_DRAWS = 300  # what the draws are for with which a policy prepares the phases that it brings


@runtime_checkable
class PhaseLoss(Protocol):
    """The loss of the problem at one place of a batch, and what there is to say of it."""

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]: ...

    def nothing_counts(self) -> bool:
        """Whether the present update learns from nothing, so that it is to change nothing."""
        ...


NatsOf = Callable[[Problem, Choices], Float[Tensor, ""]]


class Imitation:
    """The nats of choices that are known, and worked out once for each problem."""

    def __init__(
        self, lessons: Sequence[Lesson], name: str, choices_of: Callable[[Lesson], Choices], nats_of: NatsOf
    ) -> None:
        self._lessons, self._name, self._choices_of, self._nats_of = lessons, name, choices_of, nats_of
        self._choices: dict[int, Choices] = {}

    def nothing_counts(self) -> bool:
        return False

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        problem = batch.problems[place]
        lesson = self._lessons[problem]
        if problem not in self._choices:
            self._choices[problem] = self._choices_of(lesson)
        nats = self._nats_of(lesson.problem, self._choices[problem])
        return nats, metrics.labelled(lesson, {f"{self._name}_nats": float(nats.detach())})


def imitation(policy: Any, lessons: Sequence[Lesson]) -> dict[str, PhaseLoss]:
    """The objectives of the phases before reinforcement: clusterings first, then what teachers placed."""

    def clustering(lesson: Lesson) -> Choices:
        return policy.grouping_target(lesson.problem)

    def taught(lesson: Lesson) -> Choices:
        return policy.choices(lesson.problem, lesson.teacher)

    return {
        "grouping": Imitation(lessons, "grouping", clustering, partial(imitate_groups, policy)),
        "warm_start": Imitation(lessons, "warm_start", taught, partial(imitate, policy)),
    }


class Reinforcement:
    """An algorithm's loss of the samples that the policy draws in the
    first pass of an update; later passes score them again.
    """

    def __init__(
        self,
        policy: Any,
        lessons: Sequence[Lesson],
        learning: Learning,
        evaluate: Evaluator,
        best: BestPlacements,
        average: Average,
    ) -> None:
        self._policy, self._lessons, self._learning = policy, lessons, learning
        self._evaluate, self._best, self._average = evaluate, best, average
        self.experience: dict[int, Experience] = {}  # of the present update, by the place of its problem

    def nothing_counts(self) -> bool:
        """Whether samples were drawn and none of them counts."""
        return bool(self.experience) and not any(experience.number for experience in self.experience.values())

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        problem = batch.problems[place]
        lesson, algorithm, progress = (
            self._lessons[problem],
            self._learning.algorithm,
            batch.phase.progress(batch.update),
        )
        if batch.first:
            self.experience[place] = self._gather(batch, place)
        experience = self.experience[place]
        rows = minibatch(batch.turn, algorithm.minibatches, experience.tape.samples)
        scored = replay(self._policy, lesson.problem, experience.tape, experience.episode, rows)
        loss = self._of_samples(scored, experience, rows, progress) + self._of_best(problem, experience, progress)
        values = metrics.of_samples(lesson, experience, scored, self._best.found[problem]) if batch.last else {}
        return loss, values

    def _gather(self, batch: Work, place: int) -> Experience:
        problem, training, seed = batch.problems[place], self._learning.training, self._learning.seed
        so_far = self._best.found[problem]
        if isinstance(self._policy, Continues) and so_far is not None:
            self._policy.continue_from(self._lessons[problem].problem, so_far.placement)
        generator, update = sample_generator(seed, batch.update, place), batch.update - batch.phase.first
        experience = gather(
            self._policy, self._lessons[problem], problem, self._evaluate, training, update, generator, self._average
        )
        best = best_sample(experience.episode)
        self._best.offer_all(
            problem, best.placement, best.result, "sample", experience.tape.choices(best.sample)[: best.step + 1]
        )
        return experience

    def _of_samples(self, scored: Scored, experience: Experience, rows: slice, progress: float) -> Float[Tensor, ""]:
        """The mean over the samples that count: of all processes, or of this minibatch."""
        algorithm, explore, credit = (
            self._learning.algorithm,
            self._learning.training.exploration,
            experience.credit.of(rows),
        )
        bonus = EntropyBonus(explore.entropy(progress), explore.entropy_of)
        number = experience.number if algorithm.minibatches == 1 else None
        match algorithm:
            case ReinforceConfig():
                loss = reinforce(scored, credit, bonus, number)
            case PpoConfig():
                loss = ppo(scored, experience.before[rows], credit, algorithm, bonus, number)
            case _:
                assert_never(algorithm)
        return loss * weight(algorithm.decisions, sum(scored.tape.decisions_by_step())) * processes.number()

    def _of_best(self, problem: int, experience: Experience, progress: float) -> Float[Tensor, ""] | float:
        """The weighted nats of the best own sample so far; the weight grows from 0."""
        algorithm, best = self._learning.algorithm, self._best.found[problem]
        if not (algorithm.self_imitation and experience.number and best and best.choices):
            return 0.0
        nats = self_imitate(
            self._policy, self._lessons[problem].problem, best.choices, self._evaluate, algorithm.decisions == "sum"
        )
        return algorithm.self_imitation * progress * nats


class Brought:
    """The loss of a phase that the policy brings; 0 where a problem teaches nothing."""

    def __init__(
        self, objective: Objective, policy: nn.Module, lessons: Sequence[Lesson], seed: int, evaluate: Evaluator
    ) -> None:
        self._objective, self._policy, self._lessons, self._seed, self._evaluate = (
            objective,
            policy,
            lessons,
            seed,
            evaluate,
        )
        self._teaches: dict[int, bool] = {}  # of the present update, by the place of its problem

    def prepare(self) -> None:
        """Once, before the first update."""
        practice = Practice(self._evaluate, start, np.random.default_rng([self._seed, FIRST_DRAWS]))
        self._objective.prepare([lesson.problem for lesson in self._lessons], practice)

    def nothing_counts(self) -> bool:
        """Whether no process has met a problem that teaches something in this update. Every process has to ask."""
        return bool(self._teaches) and int(processes.gathered(torch.tensor([[sum(self._teaches.values())]])).sum()) == 0

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        lesson = self._lessons[batch.problems[place]]
        generator = np.random.default_rng([self._seed, BROUGHT, batch.update, place, processes.rank()])
        loss, values = self._objective.loss(lesson.problem, Practice(self._evaluate, start, generator))
        self._teaches[place] = loss is not None
        if loss is None:
            loss = sum((parameter.sum() for parameter in self._policy.parameters()), torch.zeros(())) * 0.0
        return loss, metrics.labelled(lesson, dict(values))


def start(problem: Problem, evaluate: Evaluator, generator: np.random.Generator, lists: int) -> Placement:
    """The fastest of random list schedules, from 1 to `lists`; of 0 the fastest device alone (`protocol.Starts`)."""
    if not lists:
        return single_gpu(problem, evaluate)
    source, count = list_schedules(problem, generator), int(generator.integers(1, lists + 1))
    return fastest(problem, [source() for _ in range(count)], evaluate)
