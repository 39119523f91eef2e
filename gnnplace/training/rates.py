"""Adam and its learning rate: one of each phase, falling linearly to its end; small and constant for what has learned to group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from gnnplace.policies.protocol import Groups
from gnnplace.training.learning import Learning


def optimizer(policy: nn.Module, learning: Learning) -> tuple[torch.optim.Adam, torch.optim.lr_scheduler.LambdaLR]:
    """Adam over what groups ops and all else apart, and the scheduler that gives each its rate."""
    adam = learning.training.optimizer
    grouping = {id(each) for each in policy.grouping_parameters()} if isinstance(policy, Groups) else set()
    parts: dict[bool, list[nn.Parameter]] = {}
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parts.setdefault(id(parameter) in grouping, []).append(parameter)
    made = torch.optim.Adam([{"params": each} for each in parts.values()], lr=1.0, betas=(adam.beta1, adam.beta2), eps=adam.eps)
    rates = [_plain(partial(rate, learning, grouping=groups)) for groups in parts]
    return made, torch.optim.lr_scheduler.LambdaLR(made, rates)


def rate(learning: Learning, step: int, grouping: bool = False) -> float:
    """The learning rate of a step of the optimiser, of what groups ops or of all else; after the last step it stays."""
    training, turns, found = learning.training, learning.algorithm.steps, 0.0
    for phase in training.phases:
        passes = turns if phase.name == "reinforcement" else 1
        steps = (phase.last - phase.first) * passes
        done = phase.progress(phase.first + min(step, steps - 1) // passes)
        knows_groups = grouping and training.grouping.updates and phase.name != "grouping"
        found = phase.lr * (training.grouping.lr_after if knows_groups else 1 - training.optimizer.lr_decay * done)
        if step < steps:
            break
        step -= steps
    return found


def _plain(of_step: Callable[[int], float]) -> Callable[[int], float]:
    """The same as a plain function: a checkpoint writes what other callables hold."""
    return lambda step: of_step(step)
