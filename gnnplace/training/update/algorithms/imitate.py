"""Imitation of given choices by cross-entropy: of a known placement, of a clustering, or of soft targets.

Self-imitation (Oh et al. 2018, for one best sample) is the same for the best placement that the policy found itself,
beside its policy gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gnnplace.policies.protocol import Groups, Policy
from gnnplace.policies.states import to_device
from gnnplace.policies.tape import Tape
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.training.update.rollout import rescored

Choices = Mapping[str, Int[Tensor, "1 *shape"]]
Targets = Mapping[str, Float[Tensor, "1 *shape options"]]


def imitate(policy: Policy, problem: Problem, choices: Choices, targets: Targets | None = None) -> Float[Tensor, ""]:
    """The mean cross-entropy of the policy's decisions with `choices`, in nats a decision.

    A policy of several steps makes the choices in each step.

    `targets` are probabilities of options in place of the choices (soft targets), by the same names; a policy of
    several decisions still goes the way of its choices.
    """
    state, nats = policy.reset(problem, 1), []
    while state is not None:
        tape = Tape.of(choices, 1)
        _, state = policy.step(state, tape, None)
        nats.append(_nats(tape, choices, targets or {}))
    return torch.stack(nats).mean()


def imitate_groups(policy: Groups, problem: Problem, choices: Choices) -> Float[Tensor, ""]:
    """The mean cross-entropy of a policy's groups alone with `choices`: it places nothing."""
    tape = Tape.of(choices, 1)
    policy.group(policy.reset(problem, 1), tape)
    return _nats(tape, choices, {})


def _nats(tape: Tape, choices: Choices, targets: Targets) -> Float[Tensor, ""]:
    nats = []
    for name in choices:
        decisions = tape.steps[0][name]
        if name not in targets:
            nats.append(-decisions.log_probability().flatten())
        else:
            logits = torch.stack(decisions.logits, 1) if len(decisions.logits) > 1 else decisions.logits[0]
            log = torch.log_softmax(logits, -1).flatten(0, -2)
            target = targets[name].reshape(log.shape)
            nats.append(-(target * log.masked_fill(target == 0, 0.0)).sum(-1))
    return torch.cat(nats).mean()


def self_imitate(
    policy: Policy, problem: Problem, choices: Sequence[Mapping[str, Tensor]], evaluate: Evaluator, sums: bool
) -> Float[Tensor, ""]:
    """The nats of the best sample's choices: the mean over each kind of decision, or the sum of all.

    Decisions of another kind weigh alike under the mean: a thousand ops that are grouped don't outweigh thirty groups
    that are placed. What an episode did after its best placement is not imitated; 0 where there was no decision before
    it.
    """
    steps = to_device(tuple(choices), next(policy.parameters()).device)
    tape = rescored(policy, problem, Tape.recorded(steps, "argmax"), evaluate)
    nats = [-decisions.log_probability() for step in tape.steps[: len(steps)] for decisions in step.values()]
    if not nats:
        return torch.zeros(())
    total: Tensor = sum(
        (part.sum() if sums else part.mean() for part in nats[1:]), nats[0].sum() if sums else nats[0].mean()
    )
    return total if sums else total / len(nats)
