"""A trained policy as a planner of problems that it never saw: its weights and no further training."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import nn

from gnnplace.placement import Placement
from gnnplace.policies.protocol import Policy, PolicyConfig
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.checkpoint import policy_of, restore_policy
from gnnplace.training.description import of_checkpoint
from gnnplace.training.rollout import decode, fastest, sampled


@dataclass(frozen=True, eq=False)
class ZeroShot:
    """Greedy decoding, and the fastest of that and of `samples` samples where there are any. `name` is the policy's."""

    name: str
    encoder: str | None
    policy: Policy
    samples: int
    seed: int

    def __call__(self, problem: Problem) -> Placement:
        found = [decode(self.policy, problem, simulate)[:2]]
        if self.samples:
            found += sampled(self.policy, problem, self.samples, simulate, torch.Generator().manual_seed(self.seed))
        return fastest(found)[0]


def planner(checkpoint: str | os.PathLike[str], seed: int = 0, samples: int = 0) -> ZeroShot:
    """The policy of a checkpoint. Raises ValueError (one line) where it is damaged, or of another version or shape."""
    trained = policy_of(checkpoint)
    made = of_checkpoint(trained)
    restore_policy(trained, made.policy)
    return of_policy(made.config, made.policy, seed, samples)


def of_policy(config: PolicyConfig, policy: nn.Module, seed: int = 0, samples: int = 0) -> ZeroShot:
    """The policy of these knobs, with the weights that it has."""
    assert isinstance(policy, Policy)
    return ZeroShot(config.kind, config.encodes_with, policy.eval(), samples, seed)
