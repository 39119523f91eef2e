"""The losses: their values by hand, their sign, who counts, what a Grouper learns from its k placements, clipping, soft targets."""

import math

import pytest
import torch
from support.graphs import chains
from support.learners import TablePolicy

from gnnplace.config.algorithms import PpoConfig
from gnnplace.policies.tape import Tape
from gnnplace.training.update.algorithms.imitate import imitate
from gnnplace.training.update.algorithms.loss import EntropyBonus, ppo, reinforce, value_loss
from gnnplace.training.update.credit import Credit, MovingAverage
from gnnplace.training.update.rollout import Scored


def asked(*logits, choices=None):
    """A tape that has asked one question of each of these logits, one sample a row; each chose option 0 unless told."""
    tape = Tape.of(
        {f"q{i}": torch.zeros(len(row), dtype=torch.long) if choices is None else choices[i] for i, row in enumerate(logits)},
        len(logits[0]),
    )
    for i, row in enumerate(logits):
        tape(f"q{i}", row)
    return Scored(tape, None)


def worth(*advantage, counts=None):
    made = torch.tensor([advantage], dtype=torch.float64)
    return Credit(made, made, made, torch.ones_like(made, dtype=torch.bool) if counts is None else torch.tensor([counts]))


def odds(*probabilities):
    """Logits of two options, of which the first has this probability, one sample a row."""
    return torch.tensor([[math.log(p), math.log(1 - p)] for p in probabilities], requires_grad=True)


def test_reinforce_by_hand():
    log = [math.log(0.25), math.log(0.75)]
    entropy = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (0.25, 0.75)]
    loss = reinforce(asked(odds(0.25, 0.75)), worth(2.0, -1.0), EntropyBonus(0.1))
    assert loss.item() == pytest.approx(-(2 * log[0] - log[1]) / 2 - 0.1 * sum(entropy) / 2)


def test_the_mean_is_over_samples_that_count():
    loss = reinforce(asked(odds(0.25, 0.75)), worth(2.0, 1000.0, counts=[True, False]))
    assert loss.item() == pytest.approx(-2 * math.log(0.25))


def test_no_gradient_where_nobody_counts():
    logits = odds(0.25, 0.75)
    loss = reinforce(asked(logits), worth(2.0, 1.0, counts=[False, False]))
    loss.backward()
    assert loss.item() == 0 and logits.grad.count_nonzero() == 0


@pytest.mark.parametrize("loss", [reinforce, lambda scored, made: ppo(scored, torch.full((2, 1), math.log(0.5)), made, PpoConfig())])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_an_update_raises_the_log_probability_of_the_faster_placement(optimizer, loss):
    logits = torch.zeros(2, requires_grad=True)
    step = optimizer([logits], lr=0.1)
    reward = torch.tensor([[-0.5, -2.0]], dtype=torch.float64)  # the first option is faster
    advantage = MovingAverage(initial=-1.0).advantage(reward, torch.ones(1, 2, dtype=torch.bool))
    loss(asked(logits.expand(2, 2), choices=[torch.tensor([0, 1])]), worth(*advantage[0].tolist())).backward()
    step.step()
    assert torch.log_softmax(logits, 0)[0] > math.log(0.5) > torch.log_softmax(logits, 0)[1]


def test_entropy_is_rewarded():
    logits = torch.tensor([[2.0, 0.0]], requires_grad=True)
    reinforce(asked(logits), worth(0.0), EntropyBonus(1.0)).backward()
    assert logits.grad[0, 0] > 0 > logits.grad[0, 1]  # descent brings the logits together


def test_a_grouping_gets_the_mean_advantage_of_its_placements():
    """m = 1, k = 4 and m = 2, k = 2: the gradient of a grouping's log-probability is minus its mean advantage over m."""
    advantage = [1.0, -2.0, 3.0, 6.0]
    for groupings in (1, 2):
        grouper = torch.zeros(groupings, 5, 3, requires_grad=True)
        tape = Tape("sample", 4, torch.Generator().manual_seed(0))
        grouping = tape("group", grouper)
        tape("device", torch.zeros(4, 3, 2))
        reinforce(Scored(tape, None), worth(*advantage)).backward()
        mean = torch.tensor(advantage).view(groupings, -1).mean(1)
        score = torch.nn.functional.one_hot(grouping, 3) - 1 / 3
        torch.testing.assert_close(grouper.grad, -mean[:, None, None] * score / groupings)


def test_ppo_at_the_probabilities_of_the_samples_is_the_policy_gradient():
    gradients = []
    for loss in (
        reinforce,
        lambda scored, made: ppo(scored, scored.tape.by_decision(lambda d: d.log_probability()).detach(), made, PpoConfig()),
    ):
        first, second = odds(0.3, 0.6), odds(0.5, 0.2)
        loss(asked(first, second), worth(2.0, -1.0)).backward()
        gradients.append(torch.cat([first.grad, second.grad]))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    ("advantage", "before", "moves"),
    [(1.0, 0.3, False), (1.0, 0.55, True), (-1.0, 0.3, True), (-1.0, 0.9, False), (1.0, 0.9, True)],
)
def test_ppo_stops_where_the_ratio_has_gone_far_enough(advantage, before, moves):
    """The option has probability 0.5 now; a better one stops above 1.2 times its probability before, a worse one below 0.8 times."""
    logits = odds(0.5)
    ppo(asked(logits), torch.tensor([[math.log(before)]]), worth(advantage), PpoConfig(clip=0.2)).backward()
    assert bool(logits.grad.abs().sum() > 0) == moves


def test_ppo_by_hand_with_ratios_of_decisions_and_of_samples():
    before = torch.tensor([[math.log(0.5), math.log(0.5)]])
    scored = asked(odds(0.55), odds(0.9))
    each = ppo(scored, before, worth(1.0), PpoConfig(ratio="decision"))
    assert float(each.detach()) == pytest.approx(-(1.1 + 1.2))
    whole = ppo(scored, before, worth(1.0), PpoConfig(ratio="sample"))
    assert float(whole.detach()) == pytest.approx(-1.2)


def test_a_critic_learns_its_squared_error():
    scored = asked(odds(0.5))
    values = torch.tensor([[2.0]], requires_grad=True)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    made = Credit(torch.tensor([[5.0]], dtype=torch.float64), nothing, nothing, torch.tensor([[True]]))
    loss = value_loss(scored._replace(values=values), made)
    assert float(loss.detach()) == pytest.approx(9)
    loss.backward()
    assert float(values.grad) == pytest.approx(-6) and value_loss(scored, made) == 0


def test_imitation_is_cross_entropy_with_hard_or_soft_targets():
    problem = chains(1, 2, 2)
    policy = TablePolicy(2, 2)
    policy.logits.data = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    log = torch.log_softmax(policy.logits, -1)
    choices = {"device": torch.tensor([[0, 0]])}
    assert float(imitate(policy, problem, choices)) == pytest.approx(-float((log[0, 0] + log[1, 0]) / 2))
    soft = {"device": torch.tensor([[[0.25, 0.75], [1.0, 0.0]]])}
    expected = -(0.25 * log[0, 0] + 0.75 * log[0, 1] + log[1, 0]) / 2
    assert float(imitate(policy, problem, choices, soft)) == pytest.approx(float(expected))
