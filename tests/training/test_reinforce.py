"""The policy gradient: its value by hand, its sign, who counts, and what a Grouper learns from its k placements."""

import math

import pytest
import torch

from gnnplace.policies.tape import Tape
from gnnplace.training.advantage import MovingAverage
from gnnplace.training.reinforce import reinforce_loss

BOTH = torch.tensor([True, True])


def test_loss_by_hand():
    log_probability, entropy = torch.tensor([-1.0, -3.0]), torch.tensor([0.5, 0.7])
    loss = reinforce_loss(log_probability, entropy, torch.tensor([2.0, -1.0]), BOTH, entropy_coefficient=0.1)
    assert float(loss) == pytest.approx(-(2 * -1 + -1 * -3) / 2 - 0.1 * 0.6)


def test_the_mean_is_over_samples_that_count():
    log_probability = torch.tensor([-1.0, -3.0])
    loss = reinforce_loss(log_probability, torch.zeros(2), torch.tensor([2.0, 1000.0]), torch.tensor([True, False]))
    assert float(loss) == 2


def test_none_where_nobody_counts():
    assert reinforce_loss(torch.zeros(2, requires_grad=True), torch.zeros(2), torch.ones(2), ~BOTH) is None


def test_no_gradient_passes_through_advantages():
    advantage = torch.ones(2, requires_grad=True)
    reinforce_loss(torch.zeros(2, requires_grad=True), torch.zeros(2), advantage, BOTH).backward()
    assert advantage.grad is None


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_an_update_raises_the_log_probability_of_the_faster_placement(optimizer):
    logits = torch.zeros(2, requires_grad=True)
    reward = torch.tensor([-0.5, -2.0])  # the first option is faster
    step = optimizer([logits], lr=0.1)
    log_probability = torch.log_softmax(logits, 0)
    reinforce_loss(log_probability, torch.zeros(2), MovingAverage(initial=-1.0).advantage(reward), BOTH).backward()
    step.step()
    assert torch.log_softmax(logits, 0)[0] > math.log(0.5) > torch.log_softmax(logits, 0)[1]


def test_entropy_is_rewarded():
    logits = torch.tensor([2.0, 0.0], requires_grad=True)
    log = torch.log_softmax(logits, 0)
    entropy = -(log.exp() * log).sum().expand(2)
    reinforce_loss(log, entropy, torch.zeros(2), BOTH, entropy_coefficient=1.0).backward()
    assert logits.grad[0] > 0 > logits.grad[1]  # descent brings the logits together


def test_a_grouping_gets_the_mean_advantage_of_its_placements():
    """m = 1, k = 4 and m = 2, k = 2: the gradient of a grouping's log-probability is minus its mean advantage over m."""
    advantage = torch.tensor([1.0, -2.0, 3.0, 6.0])
    for groupings in (1, 2):
        grouper = torch.zeros(groupings, 5, 3, requires_grad=True)
        tape = Tape("sample", 4, torch.Generator().manual_seed(0))
        grouping = tape("group", grouper)
        tape("device", torch.zeros(4, 3, 2))
        loss = reinforce_loss(tape.log_probability(), tape.entropy(), advantage, torch.ones(4, dtype=torch.bool))
        loss.backward()
        mean = advantage.view(groupings, -1).mean(1)
        score = torch.nn.functional.one_hot(grouping, 3) - 1 / 3
        torch.testing.assert_close(grouper.grad, -mean[:, None, None] * score / groupings)
