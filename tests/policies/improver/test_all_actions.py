"""The loss over all actions: its expectation by enumeration, its sign, and what changes nothing."""

from __future__ import annotations

import itertools

import pytest
import torch

from gnnplace.policies.improver.learning import all_actions, best_of_draws


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_it_is_the_expected_best_of_all_sequences_of_draws(draws):
    generator = torch.Generator().manual_seed(draws)
    logits, worth = torch.randn(4, generator=generator), torch.tensor([0.0, 0.3, 0.3, 1.0])
    probability = torch.softmax(logits, 0)
    expected = sum(
        float(probability[list(sequence)].prod() * worth[list(sequence)].max()) for sequence in itertools.product(range(4), repeat=draws)
    )
    assert float(best_of_draws(logits, worth, draws)) == pytest.approx(expected, abs=1e-6)


def test_with_one_draw_its_gradient_is_the_policy_gradient():
    logits, worth = torch.randn(5, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.rand(5)
    best_of_draws(logits, worth, 1).backward()
    probability = torch.softmax(logits.detach(), 0)
    assert torch.allclose(logits.grad, probability * (worth - (probability * worth).sum()), atol=1e-6)


def test_equal_worths_change_nothing_and_better_moves_become_more_probable():
    logits = torch.zeros(3, requires_grad=True)
    best_of_draws(logits, torch.ones(3), 4).backward()
    assert logits.grad.abs().max() < 1e-6
    logits = torch.zeros(3, requires_grad=True)
    all_actions(logits, torch.tensor([0.0, 0.2, 0.1]), 2, 0.0, 0.5).backward()
    assert logits.grad[1] < 0 < logits.grad[0]  # descending the loss raises the best and lowers the worst


def test_the_optimum_is_to_be_sure_of_the_best():
    logits = torch.zeros(6, requires_grad=True)
    worth = torch.tensor([0.0, 0.01, 0.3, 0.0, 0.29, 0.1])
    adam = torch.optim.Adam([logits], lr=0.1)
    for _ in range(500):
        adam.zero_grad()
        all_actions(logits, worth, 2, 0.0, 0.0).backward()
        adam.step()
    assert torch.softmax(logits.detach(), 0)[2] > 0.95


def test_shares_of_worth_lead_a_policy_that_is_sure_and_wrong():
    logits = torch.tensor([60.0, 0.0], requires_grad=True)
    worth = torch.tensor([0.0, 0.1])
    assert torch.autograd.grad(all_actions(logits, worth, 4, 0.0, 0.5), logits)[0].abs().max() < 1e-9
    assert torch.autograd.grad(all_actions(logits, worth, 4, 0.2, 0.5), logits)[0][1] < -0.01
