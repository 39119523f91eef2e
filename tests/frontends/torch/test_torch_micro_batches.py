"""A step of micro-batches is what a training loop does that adds up gradients, traced as such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from support.slow import slow
from torch import Tensor, nn
from torch.nn import functional

import gnnplace as gp
from gnnplace.frontends.torch.flat_step import Updating
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.graph import ComputationGraph
from gnnplace.transformations.micro_batches import micro_batches
from tests.support.training_steps import accumulated_step

M, WIDTH = 4, 1024
ROWS, IDS = torch.empty(4096, WIDTH, device="meta"), torch.empty(32, 64, dtype=torch.int64, device="meta")
SCALARS = {"aten.div": M, "aten.add": M - 1}  # the gradient of each division by M, and the sum of the losses


class Tied(nn.Module):
    """A table that is the last layer's weight, too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.hidden = nn.Embedding(4000, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.linear(self.hidden(self.table(ids)).relu(), self.table.weight)


class Running(nn.Module):
    """A counter that is read after it was written, and a mean that the module replaces."""

    count: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.layer(x - self.mean) / self.count


class Both(nn.Module):
    """Two parameters with one gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + (self.left + self.right)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def square(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).square().mean()


def token(module: nn.Module, ids: Tensor) -> Tensor:
    return functional.cross_entropy(module(ids).flatten(0, 1), ids.flatten())


def cast(module: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module(x).float().square().mean()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Dropout(), nn.Linear(4 * WIDTH, WIDTH))


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.AvgPool2d(30), nn.Flatten(), nn.Linear(64, 10))


class Case(NamedTuple):
    """`less` are kernels that the step of micro-batches has less often than the loop, `more` those that it has more often."""

    build: Callable[[], nn.Module]
    loss: Callable[..., Tensor]
    x: Tensor
    less: Mapping[str, int] = {}
    more: Mapping[str, int] = {}
    how: Mapping[str, Any] = {}


CASES = {
    "a norm of all gradients": Case(perceptron, square, ROWS, how={"clip_norm": 1.0}),
    "batch normalization": Case(convolution, square, torch.empty(256, 3, 32, 32, device="meta"), how={"optimizer": "sgd"}),
    "a tied table": Case(Tied, token, IDS, how={"optimizer": "adafactor"}),
    "a transformer's layer": Case(lambda: nn.TransformerEncoderLayer(WIDTH, 16), square, torch.empty(64, 4, WIDTH, device="meta")),
    "an LSTM": Case(Recurrent, square, torch.empty(64, 4, WIDTH, device="meta")),
    # the loop copies the mean into its buffer once
    "running state": Case(Running, square, ROWS, more={"aten.copy_": M - 1}),
    # the sum of parameters once; PyTorch copies a gradient that another parameter has, too, for the first micro-batch
    "a gradient of two": Case(Both, square, ROWS, {"aten.add": M - 1}, {"aten.copy_": M - 1, "aten.new_empty_strided": M - 1}),
    # casts of the weight and the bias once
    "autocast": Case(lambda: nn.Linear(WIDTH, WIDTH), cast, ROWS, {"aten._to_copy": 2 * (M - 1)}),
}  # fmt: skip
LONGER = {"batch normalization", "a transformer's layer", "an LSTM", "a gradient of two", "autocast"}


def kernels(graph: ComputationGraph) -> Counter[str]:
    """The number of kernels of each kind; means and sums of micro-batches are called as in a loop."""
    count = Counter[str]()
    for op in graph.kernel.nonzero()[0].tolist():
        in_loop = "aten.div" if graph.phase[op] == "forward" else "aten.add_"
        count[in_loop if graph.kind[op] == "sum" else str(graph.kind[op])] += 1
    return count


def on_one_device(graph: ComputationGraph) -> tuple[int, int]:
    """Step time and peak memory."""
    problem = gp.problem(graph, cluster="k40-2")
    result = gp.simulate(problem, gp.place(problem, "gpu"))
    assert result.step_time_ns is not None and result.peak_memory_bytes is not None
    return result.step_time_ns, int(result.peak_memory_bytes.max())


@pytest.mark.parametrize("name", [slow(name) if name in LONGER else name for name in CASES])
def test_the_loop_and_the_step_of_micro_batches_are_one(name: str) -> None:
    case = CASES[name]
    module = case.build().to("meta")
    step = micro_batches(TorchStep(module, case.loss, (case.x,), **case.how).computation_graph("n"), M)
    loop = accumulated_step(module, case.loss, (case.x,), Updating(**{"optimizer": "adam"} | dict(case.how)), M)
    assert kernels(step) - kernels(loop) == Counter(case.more)
    assert kernels(loop) - kernels(step) == Counter(SCALARS) + Counter(case.less)
    assert step.persistent_bytes.sum() == loop.persistent_bytes.sum()
    for ours, theirs in zip(on_one_device(step), on_one_device(loop), strict=True):
        assert ours == pytest.approx(theirs, rel=0.01)
    if not case.less and not case.more:
        assert loop.flops.sum() - step.flops.sum() == sum(SCALARS.values())


ORDER = {
    "running state": {
        *{("copy_", "mul"), ("copy_", "copy_")},  # the mean is multiplied by .9 after it was written
        *{("add_", "add_"), ("add_", "div"), ("add_", "div_2"), ("div", "add_"), ("div_2", "add_")},  # divisions read the counter
    },
    # no batch normalization waits for a gradient, which does not read the running mean
    "batch normalization": {("native_batch_norm", f"native_batch_norm{suffix}") for suffix in ("", "_backward")} | {("add_", "add_")},
}  # fmt: skip


@pytest.mark.parametrize("name", ORDER)
def test_running_state_passes_from_one_micro_batch_to_the_next(name: str) -> None:
    case = CASES[name]
    graph = micro_batches(TorchStep(case.build(), case.loss, (case.x,), **case.how).computation_graph("n"), 2)
    ends = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True)
    pairs = [[graph.op_names[op].partition("@") for op in pair] for pair in ends]
    passed = {(src, dst) for (src, _, earlier), (dst, _, later) in pairs if (earlier, later) == ("0", "1")}
    assert {pair for pair in passed if "/sum" not in pair[1]} == ORDER[name]
