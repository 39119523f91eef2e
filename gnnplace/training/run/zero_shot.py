"""A trained policy as a planner of problems that it never saw: its weights and no further training."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch

from gnnplace.baselines.improve import EVALUATIONS
from gnnplace.baselines.searching.budget import Budget
from gnnplace.knobs import MOST_OF_A_STEP, between
from gnnplace.placement import Placement
from gnnplace.policies.protocol import GuidesSearch, Policy, PolicyConfig
from gnnplace.portfolio import searches
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.checkpoint import policy_of, restore_policy
from gnnplace.training.run.description import of_checkpoint
from gnnplace.training.update.rollout import decode, fastest, sampled


@dataclass(frozen=True, eq=False)
class ZeroShot:
    """A policy as a planner: its greedy placement, or the fastest of that and of `samples` samples.

    A policy that guides a search improves `start` or list schedules instead, `evaluations` in all
    (`baselines.improve`).
    """

    name: str
    encoder: str | None
    policy: Policy
    samples: int
    seed: int
    evaluations: int = EVALUATIONS
    start: Placement | None = None

    def __call__(self, problem: Problem) -> Placement:
        if isinstance(self.policy, GuidesSearch):
            return searches.improved(
                problem, simulate, self.policy.ranking(), self.seed, Budget(evaluations=self.evaluations), self.start
            )
        candidates = [decode(self.policy, problem, simulate)[:2]]
        if self.samples:
            candidates += sampled(
                self.policy, problem, self.samples, simulate, torch.Generator().manual_seed(self.seed)
            )
        return fastest(candidates)[0]

    def starting(self, start: Placement) -> ZeroShot:
        """The policy that starts from a placement. Raises ValueError for a policy that improves none."""
        if not isinstance(self.policy, GuidesSearch):
            raise ValueError(f"--start: the policy {self.name} improves no placement; an improver does")
        return replace(self, start=start)


def planner(
    checkpoint: str | os.PathLike[str], seed: int = 0, samples: int = 0, evaluations: int | None = None
) -> ZeroShot:
    """The policy of a checkpoint; an improver evaluates `evaluations` placements, `EVALUATIONS` unless given.

    Other policies take no number of evaluations.

    Raises ValueError (one line) if the checkpoint is damaged, or of another version or shape, and for a number that is
    not taken.
    """
    between(0, MOST_OF_A_STEP, "", samples=samples)
    trained = policy_of(checkpoint)
    described = of_checkpoint(trained)
    restore_policy(trained, described.policy)
    if evaluations is not None and not isinstance(described.policy, GuidesSearch):
        raise ValueError(
            f"evaluations: the policy {described.config.kind} takes samples instead; "
            "of planner best they are the budget"
        )
    if samples and isinstance(described.policy, GuidesSearch):
        raise ValueError(f"samples: the policy {described.config.kind} draws none; it takes evaluations instead")
    assert isinstance(described.policy, Policy)
    return of_policy(described.config, described.policy, seed, samples, evaluations or EVALUATIONS)


def of_policy(
    config: PolicyConfig, policy: Policy, seed: int = 0, samples: int = 0, evaluations: int = EVALUATIONS
) -> ZeroShot:
    """The policy of these knobs, with the weights that it has."""
    return ZeroShot(config.kind, config.encodes_with, policy.eval(), samples, seed, evaluations)
