"""The sweep of operators, modules and compositions: a sample of it, and that it can find what is wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from execution import operator_cases
from torch import Tensor, nn

from experiments.placed_operators import equality, run
from experiments.placed_operators.compositions import compositions
from experiments.placed_operators.nets import Net, drawn, modules, operators
from gnnplace.isolation.worker import usable_cores

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
ONE_IN = 240


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow
def test_a_sample_of_operators_computes_what_pytorch_does() -> None:
    chosen = drawn([*operators(1)], ONE_IN)
    broken = {net.name: said for net in chosen if (said := operator_cases.broken(net, 1))}
    assert len(chosen) > 2 and not broken


@pytest.mark.slow
def test_a_sample_of_modules_computes_what_pytorch_does() -> None:
    chosen = drawn([*modules(1)], ONE_IN // 8)
    broken = {net.name: said for net in chosen if (said := operator_cases.broken(net, 1))}
    assert len(chosen) > 1 and not broken


@pytest.mark.slow
def test_a_sample_of_compositions_computes_what_pytorch_does() -> None:
    chosen = random.Random(0).sample([*islice(compositions(), run.COMPOSITIONS)], 3)
    assert not {net.name: said for net in chosen if (said := operator_cases.broken(net, 2))}


class Forgets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.ones(3)), torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + x
        return self.weight * self.seen


class Draws(Forgets):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * torch.rand(3) * x


class Fails(Forgets):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("no")


class Grows(Forgets):
    """Losses that grow until rounding decides."""

    def forward(self, x: Tensor) -> Tensor:
        one = (self.weight * torch.tensor([1e3, 2e3, 3e3])).prod()
        return self.weight * torch.sin(one * one * x) * one


class Kept(Forgets):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


class Asks(Forgets):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x if bool(self.weight.sum() > 0) else x


@pytest.mark.parametrize(("make", "said"), [(Forgets, "wrong"), (Draws, "drawn"), (Fails, "invalid"), (Asks, "refused")])
def test_what_is_not_equal_is_told_apart(make: Callable[[], nn.Module], said: str) -> None:
    """A plain attribute that is replaced is the one thing that a placed step is known to lose."""
    found = [outcome for _, outcome in equality.outcomes(Net("kind", "name", make), 1)]
    assert {outcome.said for outcome in found} == {said}
    assert not any(str(Path(__file__).parents[2]) in outcome.why for outcome in found)  # results name no folder of a machine


@pytest.mark.parametrize(("make", "diverges"), [(Grows, True), (Kept, False)])
def test_what_rounding_may_lead_to_is_seen_by_a_start_that_differs_by_rounding(make: Callable[[], nn.Module], diverges: bool) -> None:
    net, elsewhere = Net("kind", "name", make), make()
    elsewhere.weight.data.mul_(1 + (1e-6 if diverges else 1e-2))
    found, expected = (equality._train(module, None) for module in (elsewhere, make()))
    assert equality._difference(found, expected)[0] > equality.TOLERANCE
    assert equality._diverges(net, equality._train, found, expected) == diverges


def test_infinity_and_what_infinities_leave_of_each_other_are_within_rounding() -> None:
    big, left = torch.tensor([1.0, torch.inf, -torch.inf]), torch.tensor([1.0, torch.nan, -torch.inf])
    assert equality._distance(big, left) == equality.TOLERANCE
    assert equality._distance(big, -big) == equality._distance(big, torch.tensor([1.0, 2.0, -torch.inf])) == math.inf


def test_the_table_counts_each_network_once() -> None:
    found = {
        "operators: a": {"step": ["equal", ""], "inference": ["refused", "needs values at /x.py:3 (y); do this"]},
        "operators: b": {"step": ["wrong", "loss 0: 2"], "inference": ["refused", "needs values at /x.py:4 (y); do this"]},
    }
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in run.table(found).splitlines()]
    assert ["operators", "step", "1", "0", "0", "0", "0", "1"] in lines
    assert ["operators", "inference", "0", "0", "2", "0", "0", "0"] in lines and ["needs values", "2"] in lines
