"""Decisions that samples share learn the gradient of the expected reward: it is enumerated on a tiny problem."""

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from support.graphs import chains
from support.learners import learner, settings
from torch import nn

from gnnplace.config.algorithms import PpoConfig
from gnnplace.config.training import CreditConfig
from gnnplace.placement import Placement
from gnnplace.policies.tape import Decisions, Tape
from gnnplace.training.update.algorithms.loss import ppo, reinforce
from gnnplace.training.update.credit import MovingAverage, credit, leave_one_out
from gnnplace.training.update.learning import minibatch
from gnnplace.training.update.rollout import replay

GROUPINGS, PLACEMENTS = 2, 2
SAMPLES = GROUPINGS * PLACEMENTS
REWARD = torch.tensor([[-1.0, -4.0], [-2.5, -0.5]], dtype=torch.float64)
"""Of an op in each of two groups, and of each device of the second group; the first group stays on gpu:0."""


class State(NamedTuple):
    samples: int


@dataclass(eq=False)
class Grouped(nn.Module):
    """Logits of the op's group, and of the second group's device."""

    groupings: int
    learns_groups = True

    def __post_init__(self):
        super().__init__()
        self.grouper = nn.Parameter(torch.tensor([[0.3, -0.2]]))
        self.placer = nn.Parameter(torch.tensor([[0.1, -0.6]]))

    def reset(self, problem, samples):
        return State(samples)

    def step(self, state, choose, feedback):
        rows = choose.given("group")
        group = choose("group", self.grouper.expand(self.groupings if rows is None else len(rows), -1, -1))
        device = choose("device", self.placer.expand(state.samples, -1, -1))
        of_op = group.repeat_interleave(state.samples // len(group), 0) * device
        return tuple(Placement(row) for row in of_op.numpy().astype(np.int32)), None


def expected_gradient(policy):
    """Of the mean reward over all outcomes."""
    group, device = (torch.softmax(logits.double(), 1) for logits in policy.parameters())
    return torch.autograd.grad((group.T * device * REWARD).sum(), list(policy.parameters()))


def mean_loss(problem, policy, loss, parts):
    """The mean loss over all batches that the policy can draw, each in so many parts."""
    total = 0.0
    for group, device in product(product(range(2), repeat=GROUPINGS), product(range(2), repeat=SAMPLES)):
        tape = Tape.of({"group": torch.tensor(group)[:, None], "device": torch.tensor(device)[:, None]}, SAMPLES)
        policy.step(State(SAMPLES), tape, None)
        probability = sum(each.log_probability().detach().sum() for each in tape.steps[0].values()).exp()
        reward = REWARD[torch.tensor(group).repeat_interleave(PLACEMENTS), torch.tensor(device)][None]
        everyone, config = torch.ones_like(reward, dtype=torch.bool), CreditConfig(normalise=False)
        worth = credit(reward, everyone, config, MovingAverage(), 0, placements=PLACEMENTS)
        for rows in (minibatch(part, parts, SAMPLES) for part in range(parts)):
            scored = replay(policy, problem, tape, rows=rows)
            before = tape.by_decision(Decisions.log_probability)[rows].detach()
            total = total + probability * loss(scored, before, worth.of(rows)) / parts
    return total


LOSSES = {
    "reinforce": lambda scored, before, worth: reinforce(scored, worth),
    "ppo, decisions": lambda scored, before, worth: ppo(scored, before, worth, PpoConfig(ratio="decision")),
    "ppo, samples": lambda scored, before, worth: ppo(scored, before, worth, PpoConfig(ratio="sample")),
}


@pytest.mark.parametrize(("loss", "parts"), [*((loss, 1) for loss in LOSSES), ("ppo, decisions", SAMPLES)])
def test_the_mean_gradient_over_all_batches_is_that_of_the_expected_reward(loss, parts):
    policy = Grouped(GROUPINGS)
    mean_loss(chains(1, 1, 2), policy, LOSSES[loss], parts).backward()
    for weight, exact in zip(policy.parameters(), expected_gradient(policy), strict=True):
        assert torch.allclose(-weight.grad, exact, rtol=1e-4, atol=1e-6)


def test_a_grouping_is_compared_with_the_others():
    values = torch.tensor([[-1.0, -3.0, -4.0, -6.0]], dtype=torch.float64)
    everyone = torch.ones_like(values, dtype=torch.bool)
    assert leave_one_out(values, everyone, 2).tolist() == [[4, 2, -2, -4]]
    first = everyone.clone()
    first[0, 3] = False
    assert leave_one_out(values, first, 2)[0, :3].tolist() == [3, 1, -2]
    assert leave_one_out(values, everyone, 4).count_nonzero() == 0


def test_one_grouping_has_no_other():
    training = settings(groupings=1)
    with pytest.raises(ValueError, match=r"training\.groupings: leave-one-out compares a grouping with others"):
        learner([chains(1, 1, 2)], training, policy=Grouped(1))
    learner([chains(1, 1, 2)], replace(training, updates=0), policy=Grouped(1))
    learner([chains(1, 1, 2)], settings(groupings=1, baseline="moving-average"), policy=Grouped(1))
