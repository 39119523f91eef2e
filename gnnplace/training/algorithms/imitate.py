"""Imitation: a policy learns given choices by cross-entropy: those that make a known placement, a clustering, or soft targets.

Self-imitation (Oh et al. 2018, for one best sample) is the same for the best placement that the policy found itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gnnplace.placement import Placement
from gnnplace.policies.protocol import Groups, Imitates, Policy
from gnnplace.policies.tape import Tape
from gnnplace.problems import Problem

Choices = Mapping[str, Int[Tensor, "1 *shape"]]
Targets = Mapping[str, Float[Tensor, "1 *shape options"]]


def choices_of(policy: Policy, problem: Problem, placement: Placement, knob: str) -> Choices:
    """The choices that make `placement` as nearly as the policy can. Raises ValueError, naming the knob, where it can't name them."""
    check_imitates(policy, knob)
    assert isinstance(policy, Imitates)
    return policy.choices(problem, placement)


def check_imitates(policy: Policy, knob: str) -> None:
    """Raises ValueError, naming the knob that asks for imitation, for a policy that can't say which choices make a placement."""
    if not isinstance(policy, Imitates):
        raise ValueError(f"{knob}: {type(policy).__name__} cannot imitate a placement; set it to 0")


def imitate(policy: Policy, problem: Problem, choices: Choices, targets: Targets | None = None) -> Float[Tensor, ""]:
    """The mean cross-entropy of the policy's decisions with `choices`, in nats a decision; a policy of several steps makes them in each.

    `targets` are probabilities of options in place of the choices (soft targets), by the same names; a policy of several decisions still
    goes the way of its choices.
    """
    state, nats = policy.reset(problem, 1), []
    while state is not None:
        tape = Tape.of(choices, 1)
        _, state = policy.step(state, tape, None)
        nats.append(_nats(tape, choices, targets or {}))
    return torch.stack(nats).mean()


def imitate_groups(policy: Groups, problem: Problem, choices: Choices) -> Float[Tensor, ""]:
    """The same of a policy's groups alone, which `choices` name: it places nothing."""
    tape = Tape.of(choices, 1)
    policy.group(policy.reset(problem, 1), tape)
    return _nats(tape, choices, {})


def _nats(tape: Tape, choices: Choices, targets: Targets) -> Float[Tensor, ""]:
    nats = []
    for name in choices:
        made = tape.steps[0][name]
        if name not in targets:
            nats.append(-made.log_probability().flatten())
        else:
            logits = torch.stack(made.logits, 1) if len(made.logits) > 1 else made.logits[0]
            log = torch.log_softmax(logits, -1).flatten(0, -2)
            target = targets[name].reshape(log.shape)
            nats.append(-(target * log.masked_fill(target == 0, 0.0)).sum(-1))
    return torch.cat(nats).mean()
