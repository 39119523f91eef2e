"""The experience of one update with one problem: a policy's episodes, their results, and each decision's credit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from gnnplace.config.training import CreditConfig, RewardConfig, TrainingConfig
from gnnplace.policies.protocol import Policy, asks
from gnnplace.policies.tape import Decisions, Share, Tape
from gnnplace.result import Evaluator, StepResult
from gnnplace.training.update import credit, processes, reward
from gnnplace.training.update.credit import Average, Credit
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import Proposals, rollout, values_of


class Experience(NamedTuple):
    """The samples of this process: decisions, episode, credit, and log-probabilities when sampled.

    `reward` is of the samples of all processes, of which `number` count.
    """

    tape: Tape
    episode: tuple[Proposals, ...]
    credit: Credit
    before: Float[Tensor, "samples decisions"]
    reward: Float64[Tensor, "steps all_samples"]
    number: int


def check_divided(config: TrainingConfig, number: int) -> None:
    """Raises ValueError if the samples of an update can't be divided among so many processes."""
    if config.samples % number or (config.groupings > 1 and config.groupings % number):
        what = f"groupings x placements ({config.groupings} x {config.placements})"
        raise ValueError(
            f"training: {what} can't be divided among {number} processes: the groupings (or one grouping's "
            "placements) must be"
        )


def share(config: TrainingConfig) -> Share:
    """The samples of an update that this process draws.

    Raises ValueError if they can't be divided among the processes.
    """
    check_divided(config, processes.number())
    return Share(processes.rank(), processes.number(), config.groupings)


def gather(
    policy: Policy, lesson: Lesson, problem: int, evaluate: Evaluator, config: TrainingConfig, update: int,
    generator: torch.Generator,
    remembered: Average,
) -> Experience:  # fmt: skip
    """Samples one problem, evaluates all samples of a step in one call, and gives each step's decisions their credit.

    `update` counts those of reinforcement alone.
    """
    explore, worker = config.exploration, share(config)
    samples = config.samples // worker.processes
    noise = explore.noise if update < explore.noise_updates else 0.0
    tape = Tape("sample", samples, generator, noise, worker)
    episode = rollout(policy, lesson.problem, tape, evaluate)
    device = next(policy.parameters()).device
    of_steps, valid = _rewards(policy, lesson, episode, config.reward)
    all_rewards, all_valid = processes.gathered(of_steps), processes.gathered(valid)
    counts = credit.counted(all_valid, update, config.mask_infeasible_after)
    values = _values(episode, config.credit)
    all_credit = credit.credit(all_rewards, counts, config.credit, remembered, problem, values, config.placements)
    mine = all_credit.of(slice(worker.rank * samples, (worker.rank + 1) * samples))
    before = tape.by_decision(Decisions.log_probability).detach()
    return Experience(
        tape, episode, Credit(*(part.to(device) for part in mine)), before, all_rewards, int(counts.any(0).sum())
    )


def _values(episode: Sequence[Proposals], config: CreditConfig) -> Float[Tensor, "steps all_samples"] | None:
    """A critic's estimates, if the credit needs them."""
    values = values_of(episode) if config.baseline == "critic" else None
    return None if values is None else processes.gathered(values.cpu())


def _rewards(
    policy: Policy, lesson: Lesson, episode: Sequence[Proposals], config: RewardConfig
) -> tuple[Float64[Tensor, "steps samples"], Bool[Tensor, "steps samples"]]:
    """The rewards of all steps, and whether their placements could run.

    A step that is not evaluated for a reward has 0, and its samples could run if those of the last step could.
    """
    number, every = len(episode[-1].placements), asks(policy).evaluates == "every"
    rewards, valid = [], []
    for step in episode:
        rewarded = (every and not step.looks) or step is episode[-1]
        results: Sequence[StepResult] = step.results if rewarded else ()
        step_rewards = [
            reward.of(result, config, lesson.reference_ns, lesson.problem.cluster.memory_bytes) for result in results
        ]
        rewards.append(step_rewards or [0.0] * number)
        valid.append([result.infeasible is None for result in results])
    last = valid[-1] or [True] * number
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor([each or last for each in valid])
