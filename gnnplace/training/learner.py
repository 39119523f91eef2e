"""The learner: a LightningModule that samples, evaluates, and follows the gradient of an algorithm's loss.

Training has phases, each with an Adam of its own: groups imitate clusterings, the policy imitates placements, then it learns from its
own samples. A batch is one step of the optimiser (`data.Work`). An update in which no sample counts changes nothing: neither weights,
nor Adam's momentum, nor the moving average. What an update draws depends on the seed and its number alone, so a resumed run equals
an uninterrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import lightning
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.config.algorithms import AlgorithmConfig, PpoConfig
from gnnplace.policies.protocol import ClampsFeatures, SharesGroupings
from gnnplace.result import Evaluator, StepResult
from gnnplace.training import metrics, processes, rates
from gnnplace.training.algorithms import imitate
from gnnplace.training.algorithms.loss import EntropyBonus, weight
from gnnplace.training.algorithms.ppo import ppo
from gnnplace.training.algorithms.reinforce import reinforce
from gnnplace.training.algorithms.self_imitate import self_imitate
from gnnplace.training.best import BestPlacements
from gnnplace.training.credit import MovingAverage
from gnnplace.training.data import Updates, Work, sample_generator
from gnnplace.training.experience import Experience, gather
from gnnplace.training.learning import Learning, check
from gnnplace.training.lesson import Exam, Lesson
from gnnplace.training.rollout import best_sample, decode, replay


class Learner(lightning.LightningModule):
    """Trains a policy (an `nn.Module` that satisfies `Policy`) on lessons.

    `best` keeps the best placements; `description` goes into checkpoints.
    Raises ValueError where the policy can't learn what the configuration asks for.
    """

    def __init__(
        self,
        policy: Any,
        lessons: Sequence[Lesson],
        learning: Learning,
        evaluate: Evaluator,
        best: BestPlacements,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check(policy, learning)
        self.policy, self.lessons, self.learning = policy, tuple(lessons), learning
        self.evaluate, self.best, self.description = evaluate, best, dict(description or {})
        self.moving_average = MovingAverage(learning.training.credit.decay, learning.training.credit.initial)
        self.updates_done = 0
        self._choices: dict[tuple[str, int], imitate.Choices] = {}
        self._experience: dict[int, Experience] = {}
        self._now: metrics.Metrics = {}
        self._started = 0.0
        self._ratios: list[tuple[float, float] | None] = []

    def updates(self) -> Updates:
        """The work that is left to do."""
        sizes = [lesson.problem.num_ops for lesson in self.lessons]
        return Updates(sizes, self.learning.training, self.learning.algorithm.steps, self.learning.seed, lambda: self.updates_done)

    def configure_optimizers(self) -> Any:
        optimizer, scheduler = rates.optimizer(self.policy, self.learning)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_fit_start(self) -> None:
        """A policy that learns sees the range of its features in all training problems; one that does not keeps the range that it has."""
        if isinstance(self.policy, ClampsFeatures) and self.updates_done < self.learning.training.all_updates:
            self.policy.widen_ranges([lesson.problem for lesson in self.lessons])
        if isinstance(self.policy, SharesGroupings):  # its share of them, where several processes train
            self.policy.groupings = max(1, self.learning.training.groupings // processes.number())

    def on_fit_end(self) -> None:
        if isinstance(self.policy, SharesGroupings):
            self.policy.groupings = self.learning.training.groupings

    def on_train_batch_start(self, batch: Work, batch_idx: int) -> None:
        self._started = time.perf_counter()
        if batch.update == batch.phase.first and batch.first:
            optimizer = self.optimizers(use_pl_optimizer=False)
            assert isinstance(optimizer, torch.optim.Optimizer)
            optimizer.state.clear()

    def training_step(self, batch: Work, batch_idx: int) -> Float[Tensor, ""]:
        found: metrics.Metrics = {}
        losses = [self._loss(batch, place, problem, found) for place, problem in enumerate(batch.problems)]
        if batch.last:
            self._finish(batch, found)
        lessons = [self.lessons[problem] for problem in dict.fromkeys(batch.problems)]
        self._log(found | metrics.over_problems(lessons, found) | {"seconds": time.perf_counter() - self._started})
        return torch.stack(losses).mean()

    def _loss(self, batch: Work, place: int, problem: int, found: metrics.Metrics) -> Float[Tensor, ""]:
        match batch.phase.name:
            case "grouping" | "warm_start":
                lesson = self.lessons[problem]
                learn = imitate.imitate_groups if batch.phase.name == "grouping" else imitate.imitate
                nats = learn(self.policy, lesson.problem, self._imitated(batch.phase.name, problem))
                found |= metrics.labelled(lesson, {f"{batch.phase.name}_nats": float(nats.detach())})
                return nats
            case "reinforcement":
                return self._reinforce(batch, place, problem, found)
            case _:
                assert_never(batch.phase.name)

    def _imitated(self, phase: str, problem: int) -> imitate.Choices:
        """The choices that a phase imitates, worked out once."""
        if (phase, problem) not in self._choices:
            lesson = self.lessons[problem]
            if phase == "grouping":
                self._choices[phase, problem] = self.policy.grouping_target(lesson.problem)
            else:
                assert lesson.teacher is not None
                self._choices[phase, problem] = self.policy.choices(lesson.problem, lesson.teacher)
        return self._choices[phase, problem]

    def _reinforce(self, batch: Work, place: int, problem: int, found: metrics.Metrics) -> Float[Tensor, ""]:
        if batch.first:
            self._experience[place] = self._gather(batch, place, problem)
        lesson, algorithm, experience = self.lessons[problem], self.learning.algorithm, self._experience[place]
        rows = _part(batch.turn, algorithm, experience.tape.samples)
        scored = replay(self.policy, lesson.problem, experience.tape, experience.episode, rows)
        credit = experience.credit.of(rows)
        explore, progress = self.learning.training.exploration, batch.phase.progress(batch.update)
        bonus = EntropyBonus(explore.entropy(progress), explore.entropy_of)
        if isinstance(algorithm, PpoConfig):
            number = None if algorithm.minibatches > 1 else experience.number
            loss = ppo(scored, experience.before[rows], credit, algorithm, bonus, number)
        else:
            loss = reinforce(scored, credit, bonus, experience.number)
        loss = loss * weight(algorithm.decisions, sum(scored.tape.decisions_by_step())) * processes.number()
        best = self.best.found[problem]
        if best is not None and best.choices is not None and algorithm.self_imitation and bool(credit.counts.any()):
            nats = self_imitate(self.policy, lesson.problem, best.choices, self.evaluate, algorithm.decisions == "sum")
            loss = loss + algorithm.self_imitation * progress * nats
        if batch.last:
            found |= metrics.of_samples(lesson, experience, scored, best)
        return loss

    def _gather(self, batch: Work, place: int, problem: int) -> Experience:
        lesson, training, seed = self.lessons[problem], self.learning.training, self.learning.seed
        generator, update = sample_generator(seed, batch.update, place), batch.update - batch.phase.first
        made = gather(self.policy, lesson, problem, self.evaluate, training, update, generator, self.moving_average)
        sample, placement, result = best_sample(made.episode)
        self.best.offer_all(problem, placement, result, "sample", made.tape.choices(sample))
        return made

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Without a sample that counts there is no gradient, so that Adam leaves everything as it is."""
        if self._experience and not any(experience.number for experience in self._experience.values()):
            optimizer.zero_grad(set_to_none=True)
            return
        norm = nn.utils.get_total_norm([p.grad for p in self.policy.parameters() if p.grad is not None], error_if_nonfinite=True)
        self._log({"gradient_norm": float(norm)})

    def configure_gradient_clipping(
        self, optimizer: torch.optim.Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clips what groups ops and all else apart: the gradient of a thousand grouped ops would drown that of thirty placed groups."""
        if not gradient_clip_val:
            return
        clip = nn.utils.clip_grad_value_ if gradient_clip_algorithm == "value" else nn.utils.clip_grad_norm_
        for group in optimizer.param_groups:
            clip(group["params"], gradient_clip_val)

    def _finish(self, batch: Work, found: metrics.Metrics) -> None:
        self.updates_done = batch.update + 1
        if self.updates_done % self.learning.training.greedy_every == 0:
            for problem in dict.fromkeys(batch.problems):
                greedy = self.decode(problem).feasible_ns
                if greedy is not None:
                    found |= metrics.labelled(self.lessons[problem], {"greedy_ns": float(greedy)})

    def decode(self, problem: int) -> StepResult:
        """What the greedy placement of a problem takes; it is kept where it is the best so far."""
        placement, result, tape = decode(self.policy, self.lessons[problem].problem, self.evaluate)
        self.best.offer(problem, placement, result, "greedy", tape.choices(0))
        return result

    def validation_step(self, batch: Exam, batch_idx: int) -> None:
        """Places a problem that is never trained on, greedily."""
        result = decode(self.policy, batch.problem, self.evaluate)[1].feasible_ns
        self._ratios.append(None if result is None else (result / batch.heuristic_ns, result / batch.bound_ns))

    def on_validation_epoch_end(self) -> None:
        """Geometric means of the exams' step times over the best heuristic's and over the bound, and the share that does not fit."""
        ratios = [pair for pair in self._ratios if pair is not None]
        found = {"val/infeasible": 1 - len(ratios) / len(self._ratios)}
        for name, column in zip(("val/over_best_heuristic", "val/over_bound"), zip(*ratios, strict=True), strict=False):
            found[name] = metrics.geometric_mean(column)
        self._ratios = []
        self.log_dict(found, on_step=False, on_epoch=True, prog_bar=True, batch_size=1, rank_zero_only=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["gnnplace"] = {"description": self.description, "updates_done": self.updates_done, "best": self.best.state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.updates_done = checkpoint["gnnplace"]["updates_done"]
        checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"] = False  # `Updates` knows what is left
        self.best.load_state(checkpoint["gnnplace"]["best"])

    def _log(self, found: metrics.Metrics) -> None:
        """Tells callbacks, which then know the last value of every metric; loggers get the values of this step alone."""
        tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}
        self.log_dict(tensors, on_step=True, on_epoch=False, batch_size=1, logger=False)
        self._now |= found

    def on_train_batch_end(self, outputs: Any, batch: Work, batch_idx: int) -> None:
        for logger in self.loggers:
            logger.log_metrics(self._now, step=self.global_step - 1)
        self._now = {}


def _part(turn: int, algorithm: AlgorithmConfig, samples: int) -> slice:
    """The samples of one pass: all, or one minibatch of them."""
    parts = algorithm.minibatches if isinstance(algorithm, PpoConfig) else 1
    size = -(-samples // parts)
    first = turn % parts * size
    return slice(first, min(samples, first + size))
