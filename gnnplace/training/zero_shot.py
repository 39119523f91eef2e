"""A trained policy as a planner of problems that it never saw: its weights and no further training."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import nn

from gnnplace.config.run import RunConfig
from gnnplace.placement import Placement
from gnnplace.policies.protocol import Policy
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.checkpoint import load_checkpoint, restore_policy
from gnnplace.training.description import of_checkpoint
from gnnplace.training.rollout import best_of, fastest, greedy


@dataclass(frozen=True, eq=False)
class ZeroShot:
    """Greedy decoding, and the fastest of that and of `samples` samples where there are any. `name` is the policy's."""

    name: str
    encoder: str | None
    policy: Policy
    samples: int
    seed: int

    def __call__(self, problem: Problem) -> Placement:
        placements = [greedy(self.policy, simulate)(problem)]
        if self.samples:
            placements.append(best_of(self.policy, self.samples, simulate, torch.Generator().manual_seed(self.seed))(problem))
        return fastest(list(zip(placements, simulate(problem, placements), strict=True)))[0]


def planner(checkpoint: str | os.PathLike[str], seed: int = 0, samples: int = 0) -> ZeroShot:
    """The policy of a checkpoint. Raises ValueError (one line) where it is damaged, or of another version or shape."""
    loaded = load_checkpoint(checkpoint)
    run = of_checkpoint(loaded)
    restore_policy(loaded, run.policy)
    return of_policy(run.config, run.policy, seed, samples)


def of_policy(config: RunConfig, policy: nn.Module, seed: int = 0, samples: int = 0) -> ZeroShot:
    """The policy of a configuration, with the weights that it has."""
    assert isinstance(policy, Policy)
    return ZeroShot(config.policy.kind, config.policy.encodes_with, policy.eval(), samples, seed)
