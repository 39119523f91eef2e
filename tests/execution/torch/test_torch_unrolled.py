"""A placed step of several micro-batches computes what a loop of eager PyTorch computes that adds up their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import torch_steps
from support.torch_steps import planned, problem, random_placement
from torch import Tensor, nn

import gnnplace as gp
from gnnplace.cli import main
from gnnplace.execution.host import Host
from gnnplace.execution.measure import difference
from gnnplace.execution.torch.workload import TorchWorkload
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores
from gnnplace.sources.workload import MICRO_BATCH_LOADER

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")


class Scaled(nn.Module):
    """A scalar parameter, a counter that is read, an input of all micro-batches, two parameters with one gradient."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(4, 4), nn.Parameter(torch.ones(()))
        self.left, self.right = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.ones(()))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        self.count += 1
        return (self.layer(x) * self.factor + (self.left + self.right)) @ weights / self.count


def scaled() -> TorchStep:
    x = torch.randn(6, 4, requires_grad=True)
    return TorchStep(Scaled(), lambda module, x, weights: module(x, weights).square().mean(), (x, torch.randn(4, 2)), shared=("input_1",))


STEPS: dict[str, tuple[Callable[[], TorchStep], int]] = {
    "branches": (torch_steps.branches, 3),
    "batch normalization": (torch_steps.convolutions, 2),
    "experts": (torch_steps.experts, 3),
    "views": (torch_steps.views, 2),
    "dropout and a tied table": (torch_steps.dropout, 2),
    "scalars": (scaled, 3),
}


def workload(build: Callable[[], TorchStep], micro_batches: int) -> TorchWorkload:
    torch.manual_seed(0)
    return TorchWorkload(replace(build(), micro_batches=micro_batches), "small")


@pytest.mark.parametrize("name", STEPS)
def test_a_placed_step_of_micro_batches_equals_a_loop_bit_by_bit(name: str) -> None:
    step = workload(*STEPS[name])
    expected, words = step.unplaced(2)
    cluster = problem(step.graph, 2)
    plan, simulated = planned(cluster, random_placement(cluster, 1))
    assert simulated.transfers
    placed = step.start(plan)
    try:
        placed.run(2)
        found = difference(placed.outputs(), expected, words)
    finally:
        placed.close()
    assert found.variables == len(expected.variables) and found.largest == 0


def exponential() -> TorchStep:
    return TorchStep(nn.Linear(4, 2), lambda module, x: module(x).mean().exp(), (torch.randn(6, 4),))


def table() -> TorchStep:
    return TorchStep(nn.Embedding(9, 4, sparse=True), lambda module, ids: module(ids).mean(), (torch.arange(6),), "sgd")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (table, "op 'input_0/concat' joins the rows of a sparse gradient, so that it can't be run, only planned"),
        (exponential, "'mul' computes a gradient from the loss, which is divided by the number of micro-batches"),
    ],
)
def test_what_can_only_be_planned_is_refused(build: Callable[[], TorchStep], reason: str) -> None:
    with pytest.raises(MeasurementError, match=reason):
        workload(build, 2)


def test_copies_of_an_op_on_two_devices_are_refused() -> None:
    step = workload(scaled, 2)
    plan, _ = planned(cluster := problem(step.graph, 2), random_placement(cluster, 1))
    device = plan.device.copy()
    device[step.graph.op_names.index("addmm@1")] ^= 1
    with pytest.raises(MeasurementError, match="colocation group 'addmm@' is split: 'addmm@0' and 'addmm@1' are on different devices"):
        step.start(replace(plan, device=device))


def test_a_placed_module_is_that_of_one_micro_batch() -> None:
    step = replace(scaled(), micro_batches=2)
    of_two, of_one = (gp.place(gp.problem(each, cluster=torch_steps.cores(2)), "heft") for each in (step, scaled()))
    with pytest.raises(ValueError, match=r"^micro_batches: 2: placed runs a step of one micro-batch; measure runs a workload's TorchStep"):
        gp.placed(step, of_two)
    with pytest.raises(ValueError, match=r"^micro_batches: 2, and a placed module computes one a call; place the step of a micro-batch"):
        gp.placed(step, of_one)


NET = """
import torch, gnnplace as gp

def step(number=2):
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    return gp.TorchStep(net, lambda net, x: net(x).square().mean(), (torch.randn(8, 64),), micro_batches=number)

def one():
    return step(1)
"""


@pytest.mark.slow
def test_measure_runs_the_micro_batches_of_the_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    plan = gp.place(gp.problem("net.py:step", "cpu-2"), "heft")
    measured = gp.measure("net.py:step", plan, "cpu-2", protocol="paper")
    with Host(MICRO_BATCH_LOADER, "net.py:step", 0, limit_s=100.0) as host:  # whose ops `gnnplace profile` times
        assert host.graph.sha256 == plan.problem.graph.original.sha256
    assert measured.problem.graph.micro_batches == 2 and measured.measured.difference.largest == 0
    with pytest.raises(
        ValueError, match=r"^micro_batches: 2 is not 1, that of the workload; its TorchStep\(\.\.\., micro_batches=\.\.\.\) says it"
    ):
        gp.measure("net.py:one", plan, "cpu-2")


@pytest.mark.slow
def test_a_captured_step_is_simulated_in_every_form_and_measured_in_the_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    problem = gp.problem("net.py:step", "cpu-2")
    fetched = gp.place(gp.problem(problem.graph, "cpu-2", micro_batches=2, copies="fetched"), "heft")
    fetched.save("fetched.json")
    assert main(["simulate", "net.py:step", "--cluster", "cpu-2", "--placement", "fetched.json"]) == 0
    with pytest.raises(ValueError, match=r"^copies fetched: a workload runs one replica with copies together; plan with --micro"):
        gp.measure("net.py:step", fetched, "cpu-2")
    together = ("--micro-batches", "2", "--copies", "together", "--evaluations", "20", "-q", "-o", "together.json")
    assert main(["place", "net.py:step", "--cluster", "cpu-2", *together]) == 0
    words = ("--cluster", "cpu-2", "--placement", "together.json", "--protocol", "paper", "--against", "nothing")
    assert main(["measure", "net.py:step", *words]) == 0
    gp.measure("net.py:step", gp.place(problem, evaluations=20, keep_form=True), "cpu-2", protocol="paper")
