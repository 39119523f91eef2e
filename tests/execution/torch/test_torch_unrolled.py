"""A placed step of several micro-batches computes what a loop of eager PyTorch computes that adds up their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import torch_steps
from support.torch_steps import planned, problem, random_placement
from torch import Tensor, nn

import gnnplace as gp
from gnnplace.cli import main
from gnnplace.execution.host import Host
from gnnplace.execution.measure import difference
from gnnplace.execution.torch.running_state import passed
from gnnplace.execution.torch.unrolled import unrolled
from gnnplace.execution.torch.workload import TorchWorkload
from gnnplace.frontends.torch.inputs import ExampleInputs
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.isolation.outcome import Difference, MeasurementError
from gnnplace.isolation.worker import usable_cores
from gnnplace.placement import Placement
from gnnplace.sources.workload import MICRO_BATCH_LOADER
from gnnplace.transformations.parallelism import Parallelism

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


def deviation(step: TorchWorkload, form: Parallelism | None, seed: int) -> Difference:
    """How far two steps of a random placement in this form are from two unplaced ones; something is sent."""
    expected, words = step.unplaced(2, "cpu", form)
    posed = problem(step.in_form(form), 2)
    plan, simulated = planned(posed, random_placement(posed, seed))
    assert simulated.transfers or (form is not None and form.copies == "whole")  # all may stand on one device
    placed = step.start(plan)
    try:
        placed.run(2)
        return difference(placed.outputs(), expected, words)
    finally:
        placed.close()


@pytest.mark.parametrize("name", STEPS)
def test_a_placed_step_of_micro_batches_equals_a_loop_bit_by_bit(name: str) -> None:
    step = workload(*STEPS[name])
    expected, _ = step.unplaced(2)
    assert deviation(step, None, 1) == Difference(0, "the loss of step 1", len(expected.variables), 2, step.unplaced(2)[1])


ROUNDING = 1e-5  # a ring sums in another order, and a tensor that was sent has another layout
FORMS: dict[str, dict[str, Any]] = {
    "free": {"copies": "free"},
    "fetched": {"copies": "fetched"},
    "anchored": {"copies": "anchored"},
    "whole": {"copies": "whole"},
    "two replicas": {"replicas": 2},
    "replicas whose copies are free": {"copies": "free", "replicas": 2},
    "whole replicas, one a micro-batch": {"copies": "whole", "replicas": 4},
    "anchored replicas": {"copies": "anchored", "replicas": 3},
    "a replica for each micro-batch": {"replicas": 4},
    "unequal shares": {"shares": (1, 3)},
    "rings of nodes": {"copies": "whole", "replicas": 4, "ring_size": 2},
}
EXACT = ("free", "fetched", "anchored", "whole")


def four_rows(build: Callable[[], TorchStep]) -> TorchStep:
    """The step on a batch of four rows, of its own first row again and again but for other numbers."""
    step = build()
    repeated = [tensor[:1].repeat(4, *[1] * (tensor.dim() - 1)) for tensor in step.batch.tensors]
    drawn = [part + torch.rand_like(part) if part.is_floating_point() else part for part in repeated]
    return replace(step, inputs=ExampleInputs(step.inputs).call(drawn)[0])


@pytest.mark.parametrize("name", ["branches", "batch normalization", "experts", "dropout and a tied table"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_step_runs_as_the_loop_does(name: str, form: str) -> None:
    step = workload(lambda: four_rows(STEPS[name][0]), 4)
    for seed in (1, 2):
        assert deviation(step, Parallelism(4, **FORMS[form]), seed).largest <= (0 if form in EXACT else ROUNDING)


def test_families_have_shares_of_their_own_and_tables_one_home() -> None:
    step = workload(lambda: four_rows(torch_steps.experts), 4)
    layers = [layer for layer in step.graph.layer.values if layer.startswith("layers.0.experts.experts.1")]
    families = Parallelism(4, "whole", replicas=2, family_shares=tuple((layer, (0, 4)) for layer in layers))
    home = Parallelism(4, "whole", replicas=2, one_home=("layers.0.experts.experts.*",))
    for form in (families, home):
        assert deviation(step, form, 3).largest <= ROUNDING


def test_running_state_goes_from_one_micro_batch_to_the_next() -> None:
    """Each reads what the one before has written, wherever it stands; replicas have state of their own."""
    step = workload(lambda: four_rows(torch_steps.convolutions), 4)
    graph = step.in_form(form := Parallelism(4, "free"))
    posed = problem(graph, 2)
    assert graph.copies is not None
    odd = np.isin(graph.copies.micro_batch, (1, 3)) & ~graph.copies.added
    device = odd.astype(np.int32)  # from one to the other and back
    plan, _ = planned(posed, Placement(device))
    state = [what.node.name for what in passed(unrolled(step._one, graph, device), plan)]
    assert len(state) == 4 * len(set(state)) > 0  # three times to the next one, and then home
    placed = step.start(plan)
    try:
        placed.run(2)
        assert difference(placed.outputs(), *step.unplaced(2, "cpu", form)).largest == 0
    finally:
        placed.close()


def sparse() -> TorchStep:
    return TorchStep(nn.Embedding(9, 4, sparse=True), lambda module, ids: module(ids).square().mean(), (torch.arange(6) % 5,), "sgd")


@pytest.mark.parametrize("form", [None, Parallelism(2, "free"), Parallelism(2, replicas=2)])
def test_rows_of_a_sparse_gradient_are_joined(form: Parallelism | None) -> None:
    assert deviation(workload(sparse, 2), form, 1).largest <= ROUNDING


def exponential() -> TorchStep:
    return TorchStep(nn.Linear(4, 2), lambda module, x: module(x).mean().exp(), (torch.randn(6, 4),))


def test_a_gradient_that_is_computed_from_the_loss_is_refused() -> None:
    reason = "'mul' computes a gradient from the loss, which is divided by the number of micro-batches"
    with pytest.raises(MeasurementError, match=reason):
        workload(exponential, 2)


def test_copies_of_an_op_on_two_devices_are_refused() -> None:
    step = workload(scaled, 2)
    plan, _ = planned(cluster := problem(step.graph, 2), random_placement(cluster, 1))
    device = plan.device.copy()
    device[step.graph.op_names.index("addmm@1")] ^= 1
    with pytest.raises(MeasurementError, match="colocation group 'addmm@' is split: 'addmm@0' and 'addmm@1' are on different devices"):
        step.start(replace(plan, device=device))


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
def test_a_captured_step_is_simulated_and_measured_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    problem = gp.problem("net.py:step", "cpu-2")
    fetched = gp.place(gp.problem(problem.graph, "cpu-2", micro_batches=2, copies="fetched"), "heft")
    fetched.save("fetched.json")
    assert main(["simulate", "net.py:step", "--cluster", "cpu-2", "--placement", "fetched.json"]) == 0
    gp.measure("net.py:step", fetched, "cpu-2", protocol="paper")
    plan = gp.place(problem, evaluations=20)
    plan.save("best.json")
    words = ("--cluster", "cpu-2", "--protocol", "paper", "--against", "nothing")
    assert main(["measure", "net.py:step", "--placement", "best.json", *words]) == 0
    assert main(["measure", "net.py:step", "--planner", "ddp", *words]) == 0
    with pytest.raises(SystemExit, match="2"):
        main(["measure", "net.py:step", "--planner", "ddp", "--micro-batches", "4", *words])
    assert "micro_batches: 4 is not 2, that of net.py:step" in capsys.readouterr().err
