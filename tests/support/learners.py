"""A tiny policy whose optimum is known, and learners of it: one logit for each op and device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from support.graphs import chains
from torch import nn

from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.config.training import CreditConfig, ExplorationConfig, OptimizerConfig, TrainingConfig, WarmStartConfig
from gnnplace.placement import Placement
from gnnplace.policies.unit_placer.policy import UnitPlacer, UnitPlacerConfig
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.learner import Learner
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Lesson, labels


class TableState(NamedTuple):
    samples: int


class TablePolicy(nn.Module):
    """Places every op independently by a table of logits; it can express every placement."""

    def __init__(self, num_ops: int, num_devices: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(num_ops, num_devices))

    def reset(self, problem, samples):
        return TableState(samples)

    def step(self, state, choose, feedback):
        device = choose("device", self.logits.expand(state.samples, -1, -1))
        return tuple(Placement(row) for row in device.numpy().astype(np.int32)), None

    def choices(self, problem, placement):
        return {"device": torch.from_numpy(placement.device.astype(np.int64))[None]}


REINFORCE = ReinforceConfig(decisions="sum")


def settings(updates=6, warm_start=0, baseline="leave-one-out", lr=0.3, samples=8, **knobs) -> TrainingConfig:
    return TrainingConfig(
        **{
            "updates": updates,
            "placements": samples,
            "greedy_every": 2,
            "checkpoint_every": 100,
            "optimizer": OptimizerConfig(lr=lr),
            "credit": CreditConfig(baseline=baseline, initial=15.0, normalise=baseline == "leave-one-out"),
            "exploration": ExplorationConfig(entropy_start=0.0),
            "warm_start": WarmStartConfig(updates=warm_start, lr=0.1),
        }
        | knobs
    )


def ignore(*best) -> None:
    """A writer of best placements that writes nothing."""


def learner(problems, config, *, algorithm=REINFORCE, seed=0, evaluate=simulate, write=ignore, teacher=None, policy=None) -> Learner:
    """A learner of the table policy on problems of one size; the reference is one second."""
    lessons = [Lesson(problem, 10**9, teacher, label) for problem, label in zip(problems, labels(problems), strict=True)]
    policy = TablePolicy(problems[0].num_ops, problems[0].num_devices) if policy is None else policy
    return Learner(policy, lessons, Learning(config, algorithm, seed), evaluate, BestPlacements(len(lessons), write))


def unit_learner(config: TrainingConfig, algorithm: ReinforceConfig | PpoConfig = REINFORCE) -> Learner:
    """The real policy on three problems, one of them with other devices; imitation first."""
    torch.manual_seed(1)
    problems = [chains(2, 3, 2), chains(3, 2, 3), chains(2, 2, 2, time_ns=500)]
    lessons = [Lesson(p, 3000, Placement((torch.arange(p.num_ops) % 2).int().numpy())) for p in problems]
    policy = UnitPlacer(UnitPlacerConfig(units="ops", width=8, rounds=1, hidden=8))
    return Learner(policy, lessons, Learning(config, algorithm, 3), simulate, BestPlacements(len(lessons), ignore))
