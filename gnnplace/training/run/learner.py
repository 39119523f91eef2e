"""The learner: a LightningModule that samples, evaluates, and follows the gradient of an algorithm's loss.

Training has phases: groups imitate clusterings, the policy imitates placements, learns in the phases that it brings
(`protocol.BringsPhases`), and then from its own samples. Each phase has an Adam of its own, whose learning rate falls
linearly to the phase's end. A batch is one step of the optimiser (`data.Work`). An update in which no sample counts
changes nothing: neither weights, nor Adam's momentum, nor the moving average. What an update draws depends on the seed
and its number alone, so a resumed run equals an uninterrupted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import lightning
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.policies.protocol import ClampsFeatures, Groups, Policy, SharesGroupings
from gnnplace.result import Evaluator, StepResult
from gnnplace.training.run.checkpoint import todays
from gnnplace.training.run.lightning_tree import check_tree
from gnnplace.training.update import metrics, processes
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.credit import average
from gnnplace.training.update.data import Updates, Work
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Exam, Lesson
from gnnplace.training.update.objectives import Brought, PhaseLoss, Reinforcement, imitation
from gnnplace.training.update.rollout import decode


class Learner(lightning.LightningModule):
    """Trains a policy (an `nn.Module` that satisfies `Policy`) on lessons.

    `best` keeps the best placements; `description` goes into checkpoints. Raises ValueError if the policy can't learn
    what the configuration asks for.
    """

    def __init__(
        self,
        policy: Policy,
        lessons: Sequence[Lesson],
        learning: Learning,
        evaluate: Evaluator,
        best: BestPlacements,
        description: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.policy, self.lessons, self.learning = policy, tuple(lessons), learning.of(policy)
        self.evaluate, self.best, self.description = evaluate, best, dict(description or {})
        self.moving_average = average(learning.training.credit)
        self.updates_done = 0
        self._brought = {
            phase.name: Brought(phase, policy, self.lessons, learning.seed, evaluate)
            for phase in self.learning.objectives
        }
        self._reinforcement = Reinforcement(policy, self.lessons, learning, evaluate, best, self.moving_average)
        self._losses: dict[str, PhaseLoss] = {
            **imitation(policy, self.lessons),
            **self._brought,
            "reinforcement": self._reinforcement,
        }
        self._present: PhaseLoss | None = None  # of the last batch
        self._now: metrics.Metrics = {}
        self._started = 0.0
        self._ratios: list[tuple[float, float] | None] = []

    def updates(self) -> Updates:
        """The work that is left to do."""
        sizes = [lesson.problem.num_ops for lesson in self.lessons]
        return Updates(sizes, self.learning, lambda: self.updates_done)

    def configure_optimizers(self) -> Any:
        adam, scheduler = optimizer(self.policy, self.learning)
        return {"optimizer": adam, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_fit_start(self) -> None:
        """Widens the policy's ranges to all training problems, if it still learns.

        A policy that doesn't learn keeps its ranges.
        """
        if isinstance(self.policy, ClampsFeatures) and self.updates_done < self.learning.all_updates:
            self.policy.widen_ranges([lesson.problem for lesson in self.lessons])
        if self.updates_done == 0:
            for phase in self._brought.values():
                phase.prepare()
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
        loss_of = self._present = self._losses[batch.phase.name]
        learned = [loss_of(batch, place) for place in range(len(batch.problems))]
        values = {name: value for _, loss_metrics in learned for name, value in loss_metrics.items()}
        if batch.last:
            values |= self._finish(batch)
        lessons = [self.lessons[problem] for problem in dict.fromkeys(batch.problems)]
        self._log(values | metrics.over_problems(lessons, values) | {"seconds": time.perf_counter() - self._started})
        return torch.stack([loss for loss, _ in learned]).mean()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Logs the norm of the gradient, and of each part of the policy before it is clipped.

        If no sample counts it removes the gradient, so Adam changes nothing.
        """
        if self._present is not None and self._present.nothing_counts():
            optimizer.zero_grad(set_to_none=True)
            return
        parts = {f"gradient_norm of {name}": _gradient_norm(part) for name, part in self.policy.named_children()}
        self._log({"gradient_norm": _gradient_norm(self.policy)} | parts)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips the gradients of grouping and of all else, apart or together (`training.optimizer.clip`)."""
        if not gradient_clip_val:
            return
        clip = nn.utils.clip_grad_value_ if gradient_clip_algorithm == "value" else nn.utils.clip_grad_norm_
        parts = [group["params"] for group in optimizer.param_groups]
        if self.learning.training.optimizer.clip == "together":
            parts = [[*chain.from_iterable(parts)]]
        for part in parts:
            clip(part, gradient_clip_val)

    def _finish(self, batch: Work) -> metrics.Metrics:
        """Ends an update; returns the step times of its problems' greedy placements if it is time for them."""
        self.updates_done = batch.update + 1
        if self.updates_done % self.learning.training.greedy_every:
            return {}
        times = {
            self.lessons[problem].label: self.decode(problem).feasible_ns for problem in dict.fromkeys(batch.problems)
        }
        return {f"{label}/greedy_ns": float(time) for label, time in times.items() if time is not None}

    def decode(self, problem: int) -> StepResult:
        """The result of a problem's greedy placement, which is kept if it is the best so far."""
        placement, result, tape = decode(self.policy, self.lessons[problem].problem, self.evaluate)
        self.best.offer(problem, placement, result, "greedy", tape.choices(0))
        return result

    def validation_step(self, batch: Exam, batch_idx: int) -> None:
        """Places a problem that is never trained on, greedily."""
        result = decode(self.policy, batch.problem, self.evaluate)[1].feasible_ns
        self._ratios.append(None if result is None else (result / batch.heuristic_ns, result / batch.bound_ns))

    def on_validation_epoch_end(self) -> None:
        """Logs the exams' infeasible share, and geometric means of step times over best heuristics and bounds."""
        ratios = [pair for pair in self._ratios if pair is not None]
        scores = {"val/infeasible": 1 - len(ratios) / len(self._ratios)}
        for name, column in zip(("val/over_best_heuristic", "val/over_bound"), zip(*ratios, strict=True), strict=False):
            scores[name] = metrics.geometric_mean(column)
        self._ratios = []
        self.log_dict(scores, on_step=False, on_epoch=True, prog_bar=True, batch_size=1, rank_zero_only=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["gnnplace"] = {
            "description": self.description,
            "updates_done": self.updates_done,
            "best": self.best.state(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["state_dict"] = todays(checkpoint.get("state_dict", {}), self.policy, "policy.")
        problems = [lesson.problem for lesson in self.lessons]
        check_tree(checkpoint, self.state_dict(), problems, self.trainer, *optimizer(self.policy, self.learning))
        self.updates_done = checkpoint["gnnplace"]["updates_done"]
        # `Updates` yields the updates that are left
        checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["is_last_batch"] = False
        self.best.load_state(checkpoint["gnnplace"]["best"])

    def _log(self, values: metrics.Metrics) -> None:
        """Gives metrics to callbacks, which keep the last value of each; loggers get the values of this step alone."""
        tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        self.log_dict(tensors, on_step=True, on_epoch=False, batch_size=1, logger=False)
        self._now |= values

    def on_train_batch_end(self, outputs: Any, batch: Work, batch_idx: int) -> None:
        for logger in self.loggers:
            logger.log_metrics(self._now, step=self.global_step - 1)
        self._now = {}


def _gradient_norm(part: nn.Module | Policy) -> float:
    gradients = [parameter.grad for parameter in part.parameters() if parameter.grad is not None]
    return float(nn.utils.get_total_norm(gradients, error_if_nonfinite=True))


def optimizer(policy: Policy, learning: Learning) -> tuple[torch.optim.Adam, torch.optim.lr_scheduler.LambdaLR]:
    """Adam over the parameters that group ops and all others apart, and the scheduler of both rates."""
    adam = learning.training.optimizer
    grouping = {id(parameter) for parameter in policy.grouping_parameters()} if isinstance(policy, Groups) else set()
    parts: dict[bool, list[nn.Parameter]] = {}
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parts.setdefault(id(parameter) in grouping, []).append(parameter)
    adam_optimizer = torch.optim.Adam(
        [{"params": part} for part in parts.values()], lr=1.0, betas=(adam.beta1, adam.beta2), eps=adam.eps
    )
    rates = [_plain(partial(rate, learning, grouping=groups)) for groups in parts]
    return adam_optimizer, torch.optim.lr_scheduler.LambdaLR(adam_optimizer, rates)


def rate(learning: Learning, step: int, grouping: bool = False) -> float:
    """The learning rate of a step of the optimiser; after the last step it stays.

    What has learned to group goes on with a small and constant rate.
    """
    training, turns, lr = learning.training, learning.algorithm.steps, 0.0
    for phase in learning.phases:
        passes = turns if phase.name == "reinforcement" else 1
        steps = (phase.last - phase.first) * passes
        done = phase.progress(phase.first + min(step, steps - 1) // passes)
        knows_groups = grouping and training.grouping.updates and phase.name != "grouping"
        lr = phase.lr * (training.grouping.lr_after if knows_groups else 1 - training.optimizer.lr_decay * done)
        if step < steps:
            break
        step -= steps
    return lr


def _plain(of_step: Callable[[int], float]) -> Callable[[int], float]:
    """A plain function: a checkpoint would store the state of any other callable."""
    return lambda step: of_step(step)
