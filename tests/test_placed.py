"""A placed module in a loop of one's own is plain PyTorch in that loop, and says in a line what it can't run. More: execution/torch."""

from __future__ import annotations

import re

import pytest
import torch
from support import placed_steps
from support.pages import sections
from support.processes import children
from torch import Tensor, nn

import gnnplace as gp
from gnnplace.isolation.worker import usable_cores

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")


def test_a_loop_of_ones_own_computes_what_plain_pytorch_does() -> None:
    torch.manual_seed(0)
    step = placed_steps.mlp()
    data, (net, call) = placed_steps.batches(step, 5), placed_steps.plain(step)
    expected = placed_steps.train(net, call, torch.optim.AdamW, data)
    with gp.placed(step, placed_steps.split(step)) as model:
        assert placed_steps.train(model, model, torch.optim.AdamW, data) == expected
        assert list(model.state_dict()) == list(step.module.state_dict()) == [name for name, _ in model.named_parameters()]
        with torch.no_grad():
            assert model(*data[0]) == call(*data[0])
    for parameter, own, other in zip(model.parameters(), step.module.parameters(), net.parameters(), strict=True):
        assert parameter is own and torch.equal(own, other)
    with pytest.raises(ValueError, match="placed: was closed"):
        model(*data[0])


def test_what_it_cant_run_is_said_in_a_line_and_leaves_no_process() -> None:
    step, other, before = placed_steps.mlp(), placed_steps.mlp(), children()
    plan, x = placed_steps.split(step), step.inputs[0]
    for odd, against, what in (
        (step.module, plan, "step: a Sequential is no TorchStep"),
        (step, gp.Placement(plan.device), "plan: a Placement does not know its problem"),
        (gp.TorchStep(nn.Linear(6, 4), step.loss, step.inputs), plan, "plan: was made for another step: "),
        (gp.TorchInference(step.module, (x,)), plan, "plan: was made for another step: op 'input_1' of its graph is not in this one"),
        (step, placed_steps.split(placed_steps.convolutions()), "plan: was made for another step: "),
        (gp.TorchStep(other.module.to("meta"), step.loss, step.inputs), plan, "module: 0.weight: lies on the meta device"),
        (
            step,
            gp.Plan.of(plan.problem, gp.Placement(plan.device, fusion=plan.device * 0)),
            "fusion: a measured step runs each op by itself",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(what)}.*$"):
            gp.placed(odd, against)
        assert children() <= before
    many = ["cpu"] * (len(usable_cores()) + 1)
    with pytest.raises(gp.MeasurementError, match="CPU devices need as many cores"):
        gp.placed(step, placed_steps.split(step, *many))
    assert children() <= before


def test_calls_are_checked() -> None:
    step = placed_steps.mlp()
    net, (x, y) = step.module, step.inputs
    net[0].bias.requires_grad_(False)
    with gp.placed(step, placed_steps.split(step)) as model:
        for call, what in (
            (
                lambda: model(x[:3], y),
                r"inputs[0]: is float32 [3, 6], and the step was placed with float32 [8, 6]; a placed step has fixed shapes",
            ),
            (lambda: model(x.double(), y), r"inputs[0]: is float64 [8, 6], and the step was placed with float32 [8, 6]"),
            (lambda: model(x), "inputs: are (*,), and the step was placed with (*, *)"),
            (lambda: model(x, y=y), "inputs: y by name; the step was placed with 2 inputs by position"),
            (lambda: model(x, 3), "inputs[1]: a int is no tensor"),
            (lambda: model(x.clone().requires_grad_(), y), "inputs[0]: requires a gradient"),
            (lambda: model.to(torch.float64), "placed: stays where its plan says"),
        ):
            with pytest.raises(ValueError, match=f"^{re.escape(what)}"):
                call()
        model.eval()
        with pytest.raises(ValueError, match="module: the whole is in eval mode, and was placed in training mode"):
            model(x, y)
        model.train()
        net[0].bias.requires_grad_(True)
        with pytest.raises(ValueError, match=r"module: 0\.bias: requires a gradient, and was frozen when the step was placed"):
            model(x, y)
        net[0].bias.requires_grad_(False)
        with torch.autocast("cpu"), pytest.raises(ValueError, match="autocast: is not as it was"):
            model(x, y)
        net.register_parameter("scale", nn.Parameter(torch.ones(1), requires_grad=False))
        with pytest.raises(ValueError, match="module: scale: was added after the step was placed"):
            model(x, y)
        del net.scale
        net[2].weight = nn.Parameter(net[2].weight.detach().clone())
        with pytest.raises(ValueError, match=r"module: 2\.weight: was replaced after the step was placed"):
            model(x, y)


def test_the_pages_example_trains(capsys: pytest.CaptureFixture[str]) -> None:
    page, names = {section.anchor: section for section in sections("measuring.md")}, dict[str, object]()
    for anchor in ("training-on-a-plan", "several-micro-batches"):
        (block,) = page[anchor].blocks("python")
        exec(compile(block, "measuring.md", "exec"), names)
    first, last, are_there = capsys.readouterr().out.split()
    assert float(last) < float(first) and are_there == "tensor(True)"


class State(nn.Module):
    """A buffer that is written through a view of it, and a lazy conjugate."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("rows", torch.zeros(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        self.rows[0].copy_(x)
        return torch.view_as_real(torch.view_as_complex(x).conj().resolve_conj()) * self.weight * self.rows.sum(0)


def test_state_written_through_a_view_and_lazy_conjugates_are_those_of_pytorch() -> None:
    step = gp.TorchStep(State(), lambda net, x: net(x).sum(), (torch.tensor([3.0, 5.0]),), "sgd")
    problem = gp.problem(step, placed_steps.cluster("cpu", "cpu"))
    views = problem.graph.kind.among(["aten.select", "aten._conj", "aten.view_as_complex"])
    apart = gp.Plan.of(problem, gp.Placement((views & (problem.graph.colocation.index < 0)).astype("int32")))
    assert 0 < apart.device.sum() < problem.graph.num_ops
    with gp.placed(step, apart, check=True) as model:
        assert model(torch.tensor([3.0, 5.0])).item() == 3 * 3 - 5 * 5
        assert model.rows.tolist() == [[3.0, 5.0], [0.0, 0.0]]
