"""Placed modules of several micro-batches, in every form: what a loop of plain PyTorch computes that adds up their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import fake_cuda, placed_steps
from torch import Tensor, nn

import gnnplace as gp
from gnnplace.isolation.worker import usable_cores
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.units import expand, units

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
MODELS = (placed_steps.mlp, placed_steps.convolutions, placed_steps.transformer)
FORMS = {
    "together": Parallelism(4),
    "free": Parallelism(4, "free"),
    "fetched": Parallelism(4, "fetched"),
    "two replicas": Parallelism(4, replicas=2),
    "unequal replicas": Parallelism(4, "whole", shares=(1, 3)),
    "four replicas, copies free": Parallelism(4, "free", replicas=4),
}


def momentum(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


def of_four(model: Callable[[], gp.TorchStep]) -> gp.TorchStep:
    """The step on a batch of four micro-batches of three rows."""
    step = model()
    rows = [tensor[:1].repeat(12, *[1] * (tensor.dim() - 1)) for tensor in step.inputs]
    return replace(step, inputs=tuple(rows), micro_batches=4)


def at_random(step: gp.TorchStep, form: Parallelism, *kinds: str, seed: int = 0) -> gp.Plan:
    """A plan of the step in this form whose colocation groups stand on devices at random."""
    graph = form.of(gp.problem(step, placed_steps.cluster("cpu")).graph)
    problem = gp.problem(graph, placed_steps.cluster(*(kinds or ("cpu", "cpu"))))
    closed = units(problem.graph, "ops")
    drawn = np.random.default_rng(seed).integers(problem.num_devices, size=closed.num_units).astype(np.int32)
    return gp.Plan.of(problem, gp.Placement(expand(closed, drawn)))


def in_turn(step: gp.TorchStep, form: Parallelism) -> tuple[nn.Module, Callable[..., Tensor]]:
    """A copy of the module, and a call that runs the micro-batches of one replica after another, as DDP's processes do."""
    net, call = placed_steps.plain(step)

    def run(*batch: Tensor) -> Tensor:
        parts = list(zip(*(tensor.chunk(4) for tensor in batch), strict=True))
        before = {name: value.clone() for name, value in net.named_buffers()}
        after, losses, number = None, [], 0
        for share in form.shares or (4,):
            for name, value in net.named_buffers():
                value.data.copy_(before[name])
            losses += [call(*(tensor.clone() for tensor in part)) / 4 for part in parts[number : number + share]]
            after, number = after or {name: value.clone() for name, value in net.named_buffers()}, number + share
        for name, value in net.named_buffers():
            value.data.copy_(after[name])
        return sum(losses[1:], losses[0])

    return net, run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", MODELS)
def test_a_loop_of_micro_batches_equals_plain_pytorch(model: Callable[[], gp.TorchStep], form: str) -> None:
    step = of_four(model)
    data, (net, call) = placed_steps.batches(step, 3), in_turn(step, FORMS[form])
    expected = placed_steps.train(net, call, momentum, data)
    plan = at_random(step, FORMS[form], seed=1)
    with gp.placed(step, plan, check=True) as placed:
        losses = placed_steps.train(placed, placed, momentum, data)
    assert losses == pytest.approx(expected, rel=1e-5)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(placed.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("form", ["together", "free", "fetched"])
@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_those_of_accumulation_bit_by_bit(model: Callable[[], gp.TorchStep], form: str) -> None:
    step = of_four(model)
    (batch,), (net, call) = placed_steps.batches(step, 1), placed_steps.plain(step)
    losses = []
    for part in zip(*(tensor.chunk(4) for tensor in batch), strict=True):
        losses.append(call(*(tensor.clone() for tensor in part)) / 4)
        losses[-1].backward()
    with gp.placed(step, at_random(step, FORMS[form], seed=2)) as placed:
        loss = placed(*batch)
        loss.backward()
    assert torch.equal(loss, sum(losses[1:], losses[0]))
    for name, parameter in net.named_parameters():
        assert torch.equal(dict(placed.named_parameters())[name].grad, parameter.grad), name
    for name, value in net.named_buffers():
        assert torch.equal(dict(placed.named_buffers())[name], value), name


@pytest.mark.parametrize("form", ["free", "unequal replicas"])
def test_logical_gpus_run_micro_batches(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    step = of_four(placed_steps.convolutions)
    data, (net, call) = placed_steps.batches(step, 3), in_turn(step, FORMS[form])
    expected = placed_steps.train(net, call, momentum, data)
    plan = at_random(step, FORMS[form], "gpu", "cpu", "gpu")
    fake_cuda.install(monkeypatch)
    with gp.placed(step, plan) as placed:
        assert placed_steps.train(placed, placed, momentum, data) == pytest.approx(expected, rel=1e-5)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(placed.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_inputs_get_gradients_and_sparse_tables_rows() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 3, sparse=True)

        def forward(self, ids: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
            return (self.table(ids) * scale + shift).square().mean()

    ids, scale, shift = torch.arange(8) % 5, torch.rand(8, 3, requires_grad=True), torch.rand(3, requires_grad=True)
    inputs = (ids, scale, shift)
    step = gp.TorchStep(Pooled(), None, inputs, "sgd", micro_batches=4, shared=("input_2",))
    net, given = placed_steps.plain(step)[0], [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in inputs]
    for part, scaled in zip(given[0].chunk(4), given[1].chunk(4), strict=True):
        (net(part, scaled, given[2]) / 4).backward()
    with gp.placed(step, at_random(step, Parallelism(4, "free", ("input_2",)))) as placed:
        placed(*inputs).backward()
    found = placed.get_parameter("table.weight").grad
    assert found.is_sparse
    torch.testing.assert_close(found.to_dense(), net.table.weight.grad.to_dense())
    torch.testing.assert_close(scale.grad, given[1].grad)
    torch.testing.assert_close(shift.grad, given[2].grad)


def test_what_people_do_by_ddp_runs() -> None:
    step = of_four(placed_steps.mlp)
    plan = gp.place(gp.problem(step, placed_steps.cluster("cpu", "cpu")), "ddp")
    assert plan.problem.graph.copies is not None and plan.problem.graph.copies.replicas == 2
    (batch,), (_, call) = placed_steps.batches(step, 1), in_turn(step, Parallelism(4, replicas=2))
    with gp.placed(step, plan, check=True) as placed:
        torch.testing.assert_close(placed(*batch), call(*batch))


def test_another_number_is_refused_in_a_line() -> None:
    step = of_four(placed_steps.mlp)
    of_one, of_four_ = placed_steps.split(replace(step, micro_batches=1)), at_random(step, FORMS["free"])
    for given, plan, what in (
        (step, of_one, "4 of the step are not the 1 of the plan"),
        (replace(step, micro_batches=1), of_four_, "1 of"),
    ):
        with pytest.raises(ValueError, match=rf"^micro_batches: {what}.*; give TorchStep\(\.\.\., micro_batches=") as refused:
            gp.placed(given, plan)
        assert "\n" not in str(refused.value)
    net = nn.Linear(4, 2)
    inference = gp.TorchInference(net, (torch.zeros(4, 4),), micro_batches=2)
    with pytest.raises(ValueError, match=r"^micro_batches: 2 of an inference step are requests; place the step of one"):
        gp.placed(inference, gp.place(gp.problem(inference, placed_steps.cluster("cpu", "cpu")), "heft"))
