"""Training inside experiments: one policy of a configuration on given problems, in memory, with its curve and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning
import torch
from lightning import LightningModule, Trainer

from gnnplace.config import files
from gnnplace.config.run import RunConfig
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import assemble
from gnnplace.training.run.learner import Learner
from gnnplace.training.update.data import Work

SAMPLED = ("/best_sample_ns", "/mean_ns", "/median_ns")  # of the feasible samples alone


class Curve(lightning.Callback):
    """Keeps the metrics of every update, the pre-training's first."""

    def __init__(self) -> None:
        self.updates: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: Work, batch_idx: int) -> None:
        assert isinstance(pl_module, Learner)
        if batch.last:
            known = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self.updates.append({name: value for name, value in known.items() if _is_new(name, pl_module, batch, known)})

    def of(self, suffix: str) -> list[float | None]:
        """One metric of a single problem over the updates, None where it was not measured."""
        return [next((value for key, value in update.items() if key.endswith(suffix)), None) for update in self.updates]


def _is_new(name: str, learner: Learner, batch: Work, known: Mapping[str, float]) -> bool:
    """Whether this update has measured a metric: Lightning keeps the last value of each."""
    label, slash, of = name.rpartition("/")
    if not slash:
        return True
    if label not in {learner.lessons[problem].label for problem in batch.problems}:
        return False
    if of.endswith("_nats"):
        return of == f"{batch.phase.name}_nats"
    if of == "greedy_ns":
        return learner.updates_done % learner.learning.training.greedy_every == 0
    sampled = batch.phase.name == "reinforcement"
    return sampled and (f"/{of}" not in SAMPLED or known[f"{label}/infeasible"] < 1)


def config_of(policy: str, settings: str, overrides: Sequence[str], encoder: str | None = None) -> RunConfig:
    """`configs/<policy>/<settings>.yaml` with overrides such as `--training.updates=10`, and an encoder for policies that have a choice."""
    return files.read_settings(policy, settings, list(overrides), encoder)


def train(
    config: RunConfig,
    problems: Sequence[Problem],
    teachers: Sequence[Placement | None],
    *watching: lightning.Callback,
    evaluate: Evaluator = simulate,
) -> tuple[Learner, Curve]:
    """A learner at the end of its training, on one thread: experiments run one process a core."""
    torch.set_num_threads(1)
    curve = Curve()
    return assemble.train(config, problems, teachers, evaluate, [curve, *watching]).learner, curve


def outcome(learner: Learner, problem: int = 0) -> dict[str, Any]:
    """What training found for one problem: the best of its own samples and greedy decodings, and the greedy placement at the end."""
    greedy = learner.decode(problem)
    best = learner.best.by_problem[problem]
    return {
        "best_ns": None if best is None else best.step_time_ns,
        "best_is": None if best is None else best.origin,
        "greedy_ns": greedy.feasible_ns,
    }


def teacher_of(problem: Problem, config: RunConfig) -> Placement | None:
    """What a warm start imitates: the fastest placement of all heuristics, None without one."""
    if not config.training.warm_start.updates:
        return None
    from gnnplace.portfolio import planners  # every planner and what it needs, which training doesn't

    return planners.best_heuristic(problem, simulate)
