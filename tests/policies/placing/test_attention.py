"""Additive attention against its formula, and its hand-written backward pass against automatic differentiation."""

import pytest
import torch

from gnnplace.policies.placing import placer
from gnnplace.policies.placing.placer import AdditiveAttention, AdditiveScores


def naive(memory, query, v):
    return (memory[:, None] + query[:, :, None]).tanh() @ v


def arguments(leading, slots, queries, width, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = (leading, slots, width), (leading, queries, width), (width,)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def test_scores_by_hand():
    memory, query, v = torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[[0.5]]]), torch.tensor([2.0])
    scores = AdditiveScores.apply(memory, query, v)
    torch.testing.assert_close(scores, 2 * torch.tanh(torch.tensor([[[1.5, -0.5]]])))


@pytest.mark.parametrize("chunk", [1, 60, 10**6])
def test_scores_and_gradients_are_those_of_the_formula_whatever_the_chunk(chunk, monkeypatch):
    monkeypatch.setattr(placer, "CHUNK", chunk)
    ours, theirs = arguments(2, 5, 7, 3), arguments(2, 5, 7, 3)
    weight = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for scores, inputs in ((AdditiveScores.apply(*ours), ours), (naive(*theirs), theirs)):
        (scores * weight).sum().backward()
        assert all(tensor.grad is not None for tensor in inputs)
    torch.testing.assert_close(AdditiveScores.apply(*ours), naive(*theirs))
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, reference.grad)


def test_numeric_gradient():
    assert torch.autograd.gradcheck(AdditiveScores.apply, arguments(2, 3, 2, 4))


def test_reads_a_mean_of_the_transformed_slots():
    torch.manual_seed(0)
    layer = AdditiveAttention(6, 4, width=5)
    memory = layer.memory(torch.randn(2, 3, 6))
    read = layer(memory, torch.randn(2, 7, 4))
    assert read.shape == (2, 7, 5)
    assert (read <= memory.max(1, keepdim=True).values + 1e-6).all() and (read >= memory.min(1, keepdim=True).values - 1e-6).all()


def test_of_one_slot_it_reads_that_slot():
    layer = AdditiveAttention(6, 4, width=5)
    memory = layer.memory(torch.randn(1, 1, 6))
    torch.testing.assert_close(layer(memory, torch.randn(1, 2, 4)), memory.expand(1, 2, 5))
