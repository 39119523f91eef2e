"""Self-imitation: the decisions of a policy's best sample so far, imitated beside its policy gradient (Oh et al. 2018, for one sample)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gnnplace.policies.states import to_device
from gnnplace.policies.tape import Tape
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.training.best import Choices
from gnnplace.training.rollout import rescored


def self_imitate(policy: Any, problem: Problem, choices: Choices, evaluate: Evaluator, sums: bool) -> Float[Tensor, ""]:
    """The negative log-probability, in nats, of the choices that made the best sample: the mean over each kind of decision, or their sum.

    Decisions of another kind weigh alike under the mean: a thousand ops that are grouped don't outweigh thirty groups that are placed. What
    an episode did after its best placement is not imitated; 0 where there was no decision before it.
    """
    known = to_device(tuple(choices), next(policy.parameters()).device)
    tape = rescored(policy, problem, Tape.recorded(known, "argmax"), evaluate)
    nats = [-made.log_probability() for step in tape.steps[: len(known)] for made in step.values()]
    if not nats:
        return torch.zeros(())
    total: Tensor = sum((each.sum() if sums else each.mean() for each in nats[1:]), nats[0].sum() if sums else nats[0].mean())
    return total if sums else total / len(nats)
