"""Experts by grouped products, placed and trained: what plain PyTorch computes, bit for bit."""

from __future__ import annotations

import pytest
import torch
from support import placed_steps
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gnnplace as gp
from gnnplace.isolation.worker import usable_cores

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")


class Experts(nn.Module):
    """Each row goes to one of four experts, in the way of transformers: sorted by expert, offsets by a histogram."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.up = nn.Parameter(torch.randn(4, 16, 8))
        self.down = nn.Parameter(torch.randn(4, 8, 16))

    def forward(self, x: Tensor) -> Tensor:
        weight, expert = self.router(x).softmax(-1).max(-1)
        experts, order = expert.sort(stable=True)
        ends = torch.histc(experts.float(), bins=4, min=0, max=3).cumsum(0, dtype=torch.int32)
        hidden = nn.functional.grouped_mm(x[order], self.up.transpose(-2, -1), offs=ends)
        out = nn.functional.grouped_mm(hidden.relu(), self.down.transpose(-2, -1), offs=ends)
        return torch.zeros_like(out).index_copy(0, order, out * weight[order, None])


@pytest.mark.slow
def test_experts_trained_as_placed_equal_plain_pytorch() -> None:
    torch.manual_seed(0)
    step = gp.TorchStep(Experts(), lambda net, x, y: cross_entropy(net(x), y), (torch.zeros(12, 8), torch.zeros(12, dtype=torch.int64)))
    data, (net, call) = placed_steps.batches(step, 4), placed_steps.plain(step)
    expected = placed_steps.train(net, call, torch.optim.AdamW, data)
    plan = placed_steps.split(step, seed=1)
    assert not plan.warnings
    with gp.placed(step, plan) as placed:
        assert placed_steps.train(placed, placed, torch.optim.AdamW, data) == expected
    for parameter, other in zip(placed.parameters(), net.parameters(), strict=True):
        assert torch.equal(parameter, other)
