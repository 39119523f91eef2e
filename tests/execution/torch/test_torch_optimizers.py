"""Placed steps with any optimiser, micro-batches and clipping compute what eager PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_steps import planned, problem, random_placement
from torch import Tensor, nn

from gnnplace.execution.measure import difference
from gnnplace.execution.torch.workload import TorchWorkload
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.isolation.worker import usable_cores

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
STEPS = 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.out = (nn.Linear(*sizes, bias=False) for sizes in ((6, 8), (6, 8), (8, 3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.left(x)) + torch.sigmoid(self.right(x)))


def loss(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).square().mean()


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def amsgrad(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, amsgrad=True, foreach=True)


class Both(torch.optim.Optimizer):
    """Muon for the matrices of one layer, AdamW for the rest."""

    def __init__(self, parameters: Any) -> None:
        first, *rest = parameters
        super().__init__([first, *rest], {})
        self.matrices, self.others = torch.optim.Muon([first], lr=torch.tensor(0.01)), {"rest": [torch.optim.AdamW(rest)]}

    def step(self, closure: Any = None) -> None:
        self.matrices.step()
        self.others["rest"][0].step()


def tensor_rate(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=torch.tensor(0.1), momentum=0.5, differentiable=True)


QUICK: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": momentum},
    "nadam": {"optimizer": "nadam"},
    "parts": {"optimizer": Both},
    "a tensor as rate": {"optimizer": tensor_rate},
    "micro-batches, clipped": {"optimizer": "adafactor", "micro_batches": 5, "clip_norm": 0.01},
}
SLOW: dict[str, dict[str, Any]] = {
    name: {"optimizer": name} for name in ["adamw", "adadelta", "adagrad", "adamax", "asgd", "muon", "radam", "rmsprop", "rprop"]
}
SLOW |= {"amsgrad": {"optimizer": amsgrad}, "clipped by value": {"optimizer": "sgd", "clip_value": 0.001}}


def workload(**how: Any) -> TorchWorkload:
    torch.manual_seed(0)
    return TorchWorkload(TorchStep(Net(), loss, {"x": torch.randn(5, 6)}, **how), "small")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_placed_step_equals_eager_pytorch_bit_by_bit(name: str) -> None:
    check_equals_eager(workload(**(QUICK | SLOW)[name]))


def test_a_placed_step_of_several_optimisers_equals_eager_pytorch_bit_by_bit() -> None:
    torch.manual_seed(0)
    net = Net()
    first, *rest = net.parameters()
    several = [torch.optim.AdamW(rest), torch.optim.Muon([first])]
    check_equals_eager(TorchWorkload(TorchStep(net, loss, {"x": torch.randn(5, 6)}, several), "small"))


def check_equals_eager(step: TorchWorkload) -> None:
    expected, words = step.unplaced(STEPS)
    cluster = problem(step.graph, 2)
    plan, simulated = planned(cluster, random_placement(cluster, 1))
    assert simulated.transfers and len(set(expected.losses)) == STEPS
    placed = step.start(plan)
    try:
        placed.run(STEPS)
        found = difference(placed.outputs(), expected, words)
    finally:
        placed.close()
    assert found.variables == len(expected.variables) >= 3 and found.largest == 0


def dampened(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1)


class Own(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data.sub_(parameter.grad)


@pytest.mark.parametrize(
    ("optimizer", "rule"),
    [
        (dampened, "SGD's first step is not dampened, unlike all others, so it can't be run; leave"),
        (Own, "Own: what it starts from is not"),
    ],
)
def test_an_optimiser_whose_start_is_not_known_is_refused(optimizer: Callable[..., Any], rule: str) -> None:
    with pytest.raises(ValueError, match=f"optimizer: {rule}"):
        workload(optimizer=optimizer)
