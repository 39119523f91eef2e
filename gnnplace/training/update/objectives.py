"""What the optimiser descends, an objective a phase: clusterings, a teacher's placements, what moves gain, or the policy's own samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.config.training import PhaseName
from gnnplace.policies.protocol import Continues
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.training.update import metrics, processes
from gnnplace.training.update.algorithms.all_actions import all_actions
from gnnplace.training.update.algorithms.imitate import Choices, imitate, imitate_groups, self_imitate
from gnnplace.training.update.algorithms.loss import EntropyBonus, ppo, reinforce, weight
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.credit import Average
from gnnplace.training.update.data import MOVES, Work, sample_generator
from gnnplace.training.update.experience import Experience, gather
from gnnplace.training.update.learning import Learning, minibatch
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.moves import Searched, ranked_by
from gnnplace.training.update.rollout import Scored, best_sample, replay

Objective = Callable[[Work, int], tuple[Float[Tensor, ""], metrics.Metrics]]
"""The loss of the problem at one place of a batch, and what there is to say of it."""
NatsOf = Callable[[Problem, Choices], Float[Tensor, ""]]


class Imitation:
    """The nats of choices that are known, and worked out once for each problem."""

    def __init__(self, lessons: Sequence[Lesson], name: PhaseName, choices_of: Callable[[Lesson], Choices], nats_of: NatsOf) -> None:
        self._lessons, self._name, self._choices_of, self._nats_of = lessons, name, choices_of, nats_of
        self._choices: dict[int, Choices] = {}

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        problem = batch.problems[place]
        lesson = self._lessons[problem]
        if problem not in self._choices:
            self._choices[problem] = self._choices_of(lesson)
        nats = self._nats_of(lesson.problem, self._choices[problem])
        return nats, metrics.labelled(lesson, {f"{self._name}_nats": float(nats.detach())})


def imitation(policy: Any, lessons: Sequence[Lesson]) -> dict[PhaseName, Objective]:
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
    """An algorithm's loss of the samples that the policy draws in the first pass of an update; later passes score them again."""

    def __init__(
        self, policy: Any, lessons: Sequence[Lesson], learning: Learning, evaluate: Evaluator, best: BestPlacements, average: Average
    ) -> None:
        self._policy, self._lessons, self._learning = policy, lessons, learning
        self._evaluate, self._best, self._average = evaluate, best, average
        self.experience: dict[int, Experience] = {}  # of the present update, by the place of its problem

    def nothing_counts(self) -> bool:
        """Whether samples were drawn and none of them counts."""
        return bool(self.experience) and not any(experience.number for experience in self.experience.values())

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        problem = batch.problems[place]
        lesson, algorithm, progress = self._lessons[problem], self._learning.algorithm, batch.phase.progress(batch.update)
        if batch.first:
            self.experience[place] = self._gather(batch, place)
        experience = self.experience[place]
        rows = minibatch(batch.turn, algorithm.minibatches, experience.tape.samples)
        scored = replay(self._policy, lesson.problem, experience.tape, experience.episode, rows)
        loss = self._of_samples(scored, experience, rows, progress) + self._of_best(problem, experience, progress)
        found = metrics.of_samples(lesson, experience, scored, self._best.found[problem]) if batch.last else {}
        return loss, found

    def _gather(self, batch: Work, place: int) -> Experience:
        problem, training, seed = batch.problems[place], self._learning.training, self._learning.seed
        so_far = self._best.found[problem]
        if isinstance(self._policy, Continues) and so_far is not None:
            self._policy.continue_from(self._lessons[problem].problem, so_far.placement)
        generator, update = sample_generator(seed, batch.update, place), batch.update - batch.phase.first
        made = gather(self._policy, self._lessons[problem], problem, self._evaluate, training, update, generator, self._average)
        best = best_sample(made.episode)
        self._best.offer_all(problem, best.placement, best.result, "sample", made.tape.choices(best.sample)[: best.step + 1])
        return made

    def _of_samples(self, scored: Scored, experience: Experience, rows: slice, progress: float) -> Float[Tensor, ""]:
        """The mean over the samples that count: of all processes, or of this minibatch."""
        algorithm, explore, credit = self._learning.algorithm, self._learning.training.exploration, experience.credit.of(rows)
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
        nats = self_imitate(self._policy, self._lessons[problem].problem, best.choices, self._evaluate, algorithm.decisions == "sum")
        return algorithm.self_imitation * progress * nats


class Moves:
    """The loss over all moves of the pools that a search of a problem meets, guided by the policy; 0 where it meets none."""

    def __init__(self, policy: Any, lessons: Sequence[Lesson], learning: Learning, evaluate: Evaluator) -> None:
        self._policy, self._lessons, self._learning, self._evaluate = policy, lessons, learning, evaluate
        self._pools: dict[int, int] = {}  # how many the present update learns from, by the place of its problem

    def nothing_counts(self) -> bool:
        """Whether no process has met a pool to learn from in this update. Every process has to ask."""
        return bool(self._pools) and int(processes.gathered(torch.tensor([[sum(self._pools.values())]])).sum()) == 0

    def __call__(self, batch: Work, place: int) -> tuple[Float[Tensor, ""], metrics.Metrics]:
        lesson, config = self._lessons[batch.problems[place]], self._learning.training.moves
        generator = np.random.default_rng([self._learning.seed, MOVES, batch.update, place, processes.rank()])
        losses, shares = [], []
        for pool in Searched(lesson.problem, self._evaluate, ranked_by(self._policy), config, generator).pools():
            logits = self._policy.scores(pool.rows)
            gain = torch.from_numpy(pool.gain).to(logits)
            losses.append(all_actions(logits, gain, config.best_of, config.shared, config.power))
            first = logits.detach().argsort(descending=True)[: config.best_of]
            shares.append(float(gain[first].max() / gain.max()))
        self._pools[place] = len(losses)
        if not losses:
            return sum((parameter.sum() for parameter in self._policy.parameters()), torch.zeros(())) * 0.0, {}
        return torch.stack(losses).mean(), metrics.labelled(lesson, {"gained": float(np.mean(shares))})
