"""The learner: sample, evaluate all samples in one call, score the measured choices again, follow the policy gradient.

An update in which no sample counts changes nothing: neither weights, nor Adam's momentum, nor the moving average.
What an update draws depends on the seed and its number alone, so a resumed run equals an uninterrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, assert_never

import lightning
import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gnnplace.config.training import TrainingConfig
from gnnplace.policies.protocol import ClampsFeatures
from gnnplace.policies.tape import Tape
from gnnplace.result import Evaluator, StepResult
from gnnplace.training.advantage import MovingAverage, counted, leave_one_out
from gnnplace.training.best import BestPlacements
from gnnplace.training.data import Lesson, sample_generator
from gnnplace.training.imitation import imitation_loss
from gnnplace.training.reinforce import reinforce_loss
from gnnplace.training.reward import log_speedup, negative_square_root
from gnnplace.training.rollout import Proposals, fastest, greedy, replay, rollout

Metrics = dict[str, float]
IMITATION, REINFORCEMENT = 0, 1  # the two optimisers: each phase has its own Adam


class Learner(lightning.LightningModule):
    """Trains a policy (an `nn.Module` that satisfies `Policy`) on lessons; a batch is one item of `data.Updates`."""

    def __init__(
        self, policy: Any, lessons: Sequence[Lesson], config: TrainingConfig, seed: int, evaluate: Evaluator, best: BestPlacements
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy, self.lessons, self.config, self.seed = policy, tuple(lessons), config, seed
        self.evaluate, self.best = evaluate, best
        if isinstance(policy, ClampsFeatures):
            policy.widen_ranges([lesson.problem for lesson in lessons])
        self.moving_average = MovingAverage(len(lessons), config.advantage.decay, config.advantage.initial)
        self.updates_done = 0
        self.metrics: Metrics = {}

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        adam, parameters = self.config.optimizer, [p for p in self.policy.parameters() if p.requires_grad]
        betas = (adam.beta1, adam.beta2)
        return [torch.optim.Adam(parameters, lr=lr, betas=betas, eps=adam.eps) for lr in (self.config.warm_start.lr, adam.lr)]

    def training_step(self, batch: tuple[int, tuple[int, ...]]) -> None:
        update, problems = batch
        started = time.perf_counter()
        self.metrics = {}
        imitated = self.config.warm_start.updates
        if update < imitated:
            self._imitate(problems)
        else:
            self._reinforce(update - imitated, problems)
        if (update + 1) % self.config.greedy_every == 0:
            for problem in dict.fromkeys(problems):
                self.decode(problem)
        self.updates_done = update + 1
        self.metrics["seconds"] = time.perf_counter() - started
        for logger in self.loggers:
            logger.log_metrics(self.metrics, step=update)

    def _imitate(self, problems: Sequence[int]) -> None:
        optimizer = self._zeroed(IMITATION)
        for problem in problems:
            lesson = self.lessons[problem]
            assert lesson.teacher is not None
            loss = imitation_loss(self.policy, lesson.problem, lesson.teacher)
            self.manual_backward(loss / len(problems))
            self.metrics[f"{lesson.label}/imitation_nats"] = float(loss.detach())
        self._descend(optimizer)

    def _reinforce(self, update: int, problems: Sequence[int]) -> None:
        optimizer, adam = self._zeroed(REINFORCEMENT), self.config.optimizer
        optimizer.param_groups[0]["lr"] = adam.lr * (1 - adam.lr_decay * update / max(1, self.config.updates - 1))
        losses = [self._learn_from(update, problem, 1 / len(problems)) for problem in problems]
        if any(losses):
            self._descend(optimizer)

    def _learn_from(self, update: int, problem: int, weight: float) -> bool:
        """Add the gradient of one problem's samples; False where none of them counts."""
        lesson, exploration = self.lessons[problem], self.config.exploration
        noise = exploration.noise if update < exploration.noise_updates else 0.0
        tape = Tape("sample", self.config.samples, sample_generator(self.seed, update, problem), noise)
        episode = rollout(self.policy, lesson.problem, tape, self.evaluate)
        results = episode[-1].results
        self._keep_best(problem, episode)
        valid = torch.tensor([result.infeasible is None for result in results], device=self.device)
        counts = counted(valid, update, self.config.mask_infeasible_after)
        advantage = self._advantage(self._rewards(lesson, results), counts, problem)
        scored = replay(self.policy, lesson.problem, tape, episode)
        entropy, progress = scored.entropy(), update / max(1, self.config.updates - 1)
        loss = reinforce_loss(scored.log_probability(), entropy, advantage, counts, exploration.entropy(progress))
        self._measure(lesson, episode[-1], float(entropy.detach().mean()) / scored.decisions_per_sample, advantage)
        if loss is not None:
            self.manual_backward((loss + self._self_imitation(lesson, problem, scored.decisions_per_sample)) * weight)
        return loss is not None

    def _self_imitation(self, lesson: Lesson, problem: int, decisions: int) -> Float[Tensor, ""] | float:
        """The weighted nats of the best placement that the policy itself found for a problem (Oh et al. 2018, for one best sample)."""
        best, weight = self.best.found[problem], self.config.self_imitation
        if best is None or weight == 0:
            return 0.0
        return weight * decisions * imitation_loss(self.policy, lesson.problem, best.placement)

    def _zeroed(self, phase: int) -> torch.optim.Optimizer:
        optimizers = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizers, list)
        optimizers[phase].zero_grad()
        return optimizers[phase]

    def _descend(self, optimizer: torch.optim.Optimizer) -> None:
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.optimizer.clip_norm, error_if_nonfinite=True)
        self.metrics["gradient_norm"] = float(norm)
        optimizer.step()

    def _rewards(self, lesson: Lesson, results: Sequence[StepResult]) -> Float[Tensor, " samples"]:
        reward, memory = self.config.reward, lesson.problem.cluster.memory_bytes
        match reward.kind:
            case "sqrt":
                values = [negative_square_root(result) for result in results]
            case "log-ratio":
                values = [log_speedup(result, lesson.reference_ns, memory, reward.overflow) for result in results]
            case _:
                assert_never(reward.kind)
        return torch.tensor(values, device=self.device)

    def _advantage(self, reward: Float[Tensor, " samples"], counts: Bool[Tensor, " samples"], problem: int) -> Float[Tensor, " samples"]:
        kind = self.config.advantage.kind
        match kind:
            case "moving-average":
                advantage = self.moving_average.advantage(reward, problem)
                self.moving_average.update(reward, counts, problem)
            case "leave-one-out":
                advantage = leave_one_out(reward, counts)
            case _:
                assert_never(kind)
        if self.config.advantage.normalise and counts.sum() > 1:
            return advantage / advantage[counts].std().clamp(min=1e-8)
        return advantage

    def _keep_best(self, problem: int, episode: Sequence[Proposals]) -> None:
        pairs = [pair for step in episode for pair in zip(step.placements, step.results, strict=True)]
        self.best.offer(problem, *fastest(pairs), "sample")

    def decode(self, problem: int) -> StepResult:
        """What the greedy placement of a problem takes; it is kept where it is the best so far."""
        lesson = self.lessons[problem]
        placement = greedy(self.policy, self.evaluate)(lesson.problem)
        (result,) = self.evaluate(lesson.problem, [placement])
        self.best.offer(problem, placement, result, "greedy")
        if result.feasible_ns is not None:
            self.metrics[f"{lesson.label}/greedy_ns"] = result.feasible_ns
        return result

    def _measure(self, lesson: Lesson, last: Proposals, entropy: float, advantage: Float[Tensor, " samples"]) -> None:
        times = [result.feasible_ns for result in last.results if result.feasible_ns is not None]
        measured: Metrics = {
            "entropy": entropy,
            "infeasible": 1 - len(times) / len(last.results),
            "advantage_std": float(advantage.std(correction=0)),
        }
        if times:
            measured |= {"best_sample_ns": min(times), "mean_ns": float(np.mean(times)), "median_ns": float(np.median(times))}
        best = self.best.found[self.lessons.index(lesson)]
        if best is not None:
            measured["best_ns"] = best.step_time_ns
        ops = np.mean([np.bincount(p.device, minlength=lesson.problem.num_devices) for p in last.placements], axis=0)
        measured |= {f"ops on {name}": float(count) for name, count in zip(lesson.problem.cluster.device_names, ops, strict=True)}
        self.metrics |= {f"{lesson.label}/{key}": value for key, value in measured.items()}
