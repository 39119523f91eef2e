"""Placed modules in loops of one's own: what plain PyTorch computes, in every sort of step; and that nothing of them is left behind."""

from __future__ import annotations

import copy
import gc
import os
import signal
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support import fake_cuda, placed_steps, torch_steps
from support.processes import children
from support.slow import thorough
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import gnnplace as gp
from gnnplace.execution.torch.live_step import LiveStep
from gnnplace.frontends.torch.inference import tensors_in, with_tensors
from gnnplace.isolation.worker import usable_cores
from gnnplace.units.units import expand, units

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
MODELS = (placed_steps.mlp, placed_steps.convolutions, placed_steps.transformer)
OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
}
EAGER_DIFFERS = ("dropout",)  # it draws other numbers


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


def assert_equal(module: nn.Module, other: nn.Module) -> None:
    found, expected = module.state_dict(), other.state_dict()
    assert list(found) == list(expected)
    for name, value in found.items():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_five_steps_equal_plain_pytorch(model: Callable[[], gp.TorchStep], optimizer: str) -> None:
    step = model()
    data, (net, call) = placed_steps.batches(step, 5), placed_steps.plain(step)
    expected = placed_steps.train(net, call, OPTIMIZERS[optimizer], data)
    plan = placed_steps.split(step, seed=1)
    assert len(plan.step.timeline.transfer_src) > 3
    with gp.placed(step, plan) as placed:
        assert placed_steps.train(placed, placed, OPTIMIZERS[optimizer], data) == expected
    assert_equal(placed, net)
    assert_equal(step.module, net)


@pytest.mark.parametrize("name", [name for name in torch_steps.STEPS if name not in EAGER_DIFFERS])
def test_gradients_of_every_sort_of_step(name: str) -> None:
    step = torch_steps.STEPS[name]()
    net, call = placed_steps.plain(step)
    call(*step.inputs).backward()
    with gp.placed(step, placed_steps.split(step, seed=2)) as placed:
        placed(*step.inputs).backward()
    for (name, parameter), other in zip(placed.named_parameters(), net.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None), name
        if other.grad is not None:
            assert parameter.grad.is_sparse == other.grad.is_sparse
            torch.testing.assert_close(parameter.grad.to_dense(), other.grad.to_dense(), rtol=1e-5, atol=1e-6)
    assert_equal(placed, net)  # buffers


@pytest.mark.parametrize("kinds", [("gpu", "gpu"), ("gpu", "cpu", "gpu")])
@pytest.mark.parametrize("model", MODELS)
def test_logical_gpus_compute_what_plain_pytorch_does(
    monkeypatch: pytest.MonkeyPatch, model: Callable[[], gp.TorchStep], kinds: tuple[str, ...]
) -> None:
    step = model()
    data, (net, call) = placed_steps.batches(step, 3), placed_steps.plain(step)
    expected = placed_steps.train(net, call, OPTIMIZERS["adamw"], data)
    plan = placed_steps.split(step, *kinds)
    fake_cuda.install(monkeypatch)
    with gp.placed(step, plan) as placed:
        assert placed_steps.train(placed, placed, OPTIMIZERS["adamw"], data) == expected
    assert_equal(step.module, net)


def test_a_loss_is_a_loss() -> None:
    """Sums, scales, accumulation, several calls before the backward pass, no gradients."""
    step = placed_steps.mlp()
    first, second = placed_steps.batches(step, 2)
    net, call = placed_steps.plain(step)

    def gradients(module: nn.Module, run: Callable[..., Tensor]) -> list[Tensor]:
        (run(*first) + 2 * run(*second)).backward()
        (run(*first) / 4).backward()
        with torch.no_grad():
            assert not run(*second).requires_grad
        run(*second).backward()
        return [parameter.grad.clone() for parameter in module.parameters()]

    with gp.placed(step, placed_steps.split(step)) as placed:
        for found, expected in zip(gradients(placed, placed), gradients(net, call), strict=True):
            torch.testing.assert_close(found, expected)
        loss = placed(*second)
        loss.backward(retain_graph=True)
        with pytest.raises(ValueError, match="backward: the gradients of this call were handed over before"):
            loss.backward()
        with pytest.raises(ValueError, match="create_graph: a placed step has first derivatives alone"):
            torch.autograd.grad(placed(*first), list(placed.parameters()), create_graph=True)


class Sums(nn.Module):
    """Two parameters of one gradient, one of none, a sparse table."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = (nn.Parameter(torch.randn(3)) for _ in range(3))
        self.table = nn.Embedding(5, 3, sparse=True)

    def forward(self, ids: Tensor) -> Tensor:
        return ((self.a + self.b) * self.table(ids).tanh() * self.table(ids + 1)).sum()


def test_gradients_are_each_parameters_own() -> None:
    step = gp.TorchStep(Sums(), lambda net, ids: net(ids), (torch.tensor([1, 3, 1]),), "sgd")
    net, call = placed_steps.plain(step)
    with gp.placed(step, placed_steps.split(step)) as placed:
        for run in (placed, call):
            for scale in (0.5, 3.0):
                (run(*step.inputs) * scale).backward()
    assert step.module.unused.grad is None and step.module.table.weight.grad.is_sparse
    for own, other in ((step.module.a, net.a), (step.module.b, net.b), (step.module.table.weight, net.table.weight)):
        torch.testing.assert_close(own.grad.to_dense(), other.grad.to_dense())
    assert step.module.a.grad.data_ptr() != step.module.b.grad.data_ptr()


class Checkpointed(nn.Module):
    """A reentrant checkpoint, a sparse table that is its own output layer, and a pooler that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(9, 4, sparse=True), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.pooler = nn.Linear(4, 50)

    def forward(self, ids: Tensor, scale: Tensor) -> Tensor:
        hidden = checkpoint(self.layers, self.table(ids) * scale, use_reentrant=True)
        self.pooler(hidden)
        return (hidden @ self.table.weight.t()).square().mean()


def test_an_input_gets_its_gradient_and_a_table_both_parts_of_its_own() -> None:
    inputs = (torch.tensor([1, 3, 1]), torch.randn(4, requires_grad=True))
    step = gp.TorchStep(Checkpointed(), lambda net, *values: net(*values), inputs, "adam")
    net, call = placed_steps.plain(step)
    gradients = []
    with gp.placed(step, placed_steps.split(step, seed=2), check=True) as placed:
        for run in (placed, call):
            inputs[1].grad = None
            (run(*inputs) * 2.0).backward()
            gradients.append(inputs[1].grad)
        with pytest.raises(ValueError, match=r"inputs\[1\]: is float64"):
            placed(inputs[0], inputs[1].double())
        assert not placed(inputs[0], inputs[1].detach()).isnan()
    torch.testing.assert_close(*gradients)
    for parameter, other in zip(step.module.parameters(), net.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None)
        if other.grad is not None:
            torch.testing.assert_close(parameter.grad, other.grad)


def test_tensors_that_change_between_calls() -> None:
    """In place, by other memory of the same type, by load_state_dict; frozen ones."""
    step = placed_steps.convolutions()
    (batch,) = placed_steps.batches(step, 1)
    net, call = placed_steps.plain(step)
    with gp.placed(step, placed_steps.split(step)) as placed:
        for module in (placed, net):
            parameter = next(module.parameters())
            parameter.data = parameter.data * 2
            parameter.requires_grad_(False)
        assert placed(*batch).item() == call(*batch).item()
        placed(*batch).backward()
        assert next(placed.parameters()).grad is None
        other = {name: torch.ones_like(value) for name, value in net.state_dict().items()}
        placed.load_state_dict(other)
        net.load_state_dict(other)
        assert placed(*batch).item() == call(*batch).item()
        assert_equal(placed, net)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass
class Found:
    pair: Pair
    rest: dict[str, list[Tensor]]
    name: str = "found"


class Nested(nn.Module):
    """Returns tensors in containers, one of them twice, one an input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Tensor, scale: Tensor, *, power: int) -> Found:
        made = self.net(x) * scale**power
        return Found(Pair(made, made.sum()), {"scale": [scale, made]})


def test_inference_returns_what_the_module_returns() -> None:
    net, x, scale = Nested(), torch.randn(5, 6), torch.tensor(3.0)
    step = gp.TorchInference(net, {"x": x, "scale": scale, "power": 2})
    plain = copy.deepcopy(net).eval()
    with gp.placed(step, placed_steps.split(step, seed=3)) as placed:
        for module in (net, plain):
            with torch.no_grad():
                module.net[0].weight.mul_(2)
        given = {"power": 2, "x": torch.randn(5, 6), "scale": torch.tensor(2.0)}
        found, expected = placed(**given), plain(**given)
        assert type(found) is Found and type(found.pair) is Pair and found.name == "found"
        assert torch.equal(found.pair.first, expected.pair.first) and torch.equal(found.pair.second, expected.pair.second)
        assert torch.equal(found.rest["scale"][0], given["scale"]) and torch.equal(found.rest["scale"][1], expected.pair.first)
        assert not found.pair.first.requires_grad
        with pytest.raises(ValueError, match=r"inputs\['power'\]: is 3, and the step was placed with 2; such values are part of the step"):
            placed(**(given | {"power": 3}))
        with pytest.raises(ValueError, match="inputs: 1 by position, none by name; give x, scale, power"):
            placed(x)


class Answers(OrderedDict[str, Tensor]):
    """A container whose constructor takes no mapping."""

    def __init__(self) -> None:
        super().__init__()


class Kept(Mapping[str, Tensor]):
    """A mapping that can't be changed."""

    def __init__(self, **tensors: Tensor) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def in_lists(y: Tensor) -> defaultdict[str, list[Tensor]]:
    lists = defaultdict[str, list[Tensor]](list)
    lists["rows"] += [y, y + 1]
    return lists


def in_answers(y: Tensor) -> Answers:
    answers = Answers()
    answers["first"], answers["second"] = y, y.sum()
    return answers


CONTAINERS: dict[str, Callable[[Tensor], Mapping[str, Any]]] = {
    "defaultdict": in_lists,
    "OrderedDict": lambda y: OrderedDict(b=y, a=y * 2),
    "UserDict": lambda y: UserDict({"y": (y, [y.sum(0)])}),
    "its own constructor": in_answers,
    "its own mapping": lambda y: Kept(y=y, half=y / 2),
    "a named tuple of PyTorch": lambda y: {"max": y.max(1), "none": None},
}


class Returns(nn.Module):
    def __init__(self, container: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.container = nn.Linear(4, 4), container

    def forward(self, x: Tensor) -> Any:
        return self.container(self.layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTAINERS)
def test_results_are_in_the_containers_that_the_module_returns(name: str) -> None:
    net, x = Returns(CONTAINERS[name]), torch.randn(3, 4)
    step = gp.TorchInference(net, (x,))
    with gp.placed(step, placed_steps.split(step, seed=3)) as model:
        for _ in range(2):
            result, expected = model(x), net(x)
            assert type(result) is type(expected) and list(result) == list(expected)
            pairs = zip(tensors_in(result), tensors_in(expected), strict=True)
            assert all(torch.equal(tensor, other) for tensor, other in pairs)
            assert [type(value) for value in result.values()] == [type(value) for value in expected.values()]


def test_a_result_that_cant_be_copied_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^module: its output, a mappingproxy, can't be copied: TypeError: [^\n]*$"):
        with_tensors(MappingProxyType({"y": torch.zeros(1)}), [torch.ones(1)])


@pytest.mark.slow
@pytest.mark.parametrize("trains", [True, False])
def test_a_module_of_two_names_is_placed(trains: bool) -> None:
    linear, norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
    net, x = nn.Sequential(linear, norm, linear, norm), torch.randn(3, 4)
    plain = copy.deepcopy(net)
    step: Any = gp.TorchStep(net, lambda net, x: net(x).square().sum(), (x,)) if trains else gp.TorchInference(net, (x,))
    with gp.placed(step, placed_steps.split(step, seed=3)) as model:
        result = model(x)
        assert list(model.state_dict()) == list(plain.state_dict())
        expected = step.loss(plain, x) if trains else plain.eval()(x)
        torch.testing.assert_close(result, expected)
        if trains:
            result.backward()
            expected.backward()
        for parameter, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, other.grad)
        for buffer, other in zip(model.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(buffer, other)


def test_draws_are_those_of_the_seed_and_the_call() -> None:
    def losses(seed: int) -> list[float]:
        torch.manual_seed(0)
        step = torch_steps.dropout()
        with gp.placed(step, placed_steps.split(step, seed=seed), seed=seed) as placed:
            state = torch.get_rng_state()
            found = [placed(*step.inputs).item() for _ in range(3)]
            assert torch.equal(torch.get_rng_state(), state)
        return found

    first = losses(0)
    assert first == losses(0) and len({*first, *losses(1)}) == 6


def test_a_failed_device_raises_and_ends_all() -> None:
    step = placed_steps.mlp()
    before = children()
    placed = gp.placed(step, placed_steps.split(step))
    placed(*step.inputs)
    found = children() - before
    assert len(found) == 2
    os.kill(min(found), signal.SIGKILL)
    with pytest.raises(gp.MeasurementError, match="was killed by SIGKILL"):
        placed(*step.inputs)
    with pytest.raises(ValueError, match="placed: was closed"):
        placed(*step.inputs)
    assert children() <= before
    wrong = gp.placed(step, placed_steps.split(step))
    with pytest.raises(gp.MeasurementError, match="crash: IndexError: Target 99 is out of bounds"):
        wrong(step.inputs[0], torch.full_like(step.inputs[1], 99))
    assert children() <= before
    again = gp.placed(step, placed_steps.split(step))
    again(*step.inputs).backward()
    again.close()
    again.close()


def test_what_is_gone_has_no_processes() -> None:
    step = placed_steps.mlp()
    before = children()
    placed = gp.placed(step, placed_steps.split(step))
    placed(*step.inputs).backward()
    child = os.fork()
    if child == 0:
        del placed  # in a fork, as in a worker of a data loader: nothing ends
        os._exit(0)
    os.waitpid(child, 0)
    placed(*step.inputs).backward()
    assert len(children() - before) == 2
    del placed
    gc.collect()
    assert children() <= before


def test_processes_of_a_process_with_threads() -> None:
    torch.set_num_threads(2)
    torch.randn(500, 500) @ torch.randn(500, 500)
    step = placed_steps.convolutions()
    with gp.placed(step, placed_steps.split(step)) as placed:
        for batch in placed_steps.batches(step, 3):
            placed(*batch).backward()
            torch.randn(500, 500) @ torch.randn(500, 500)
    assert torch.get_num_threads() == 2


def test_what_would_be_wrong_is_refused() -> None:
    step = placed_steps.mlp()
    plan = placed_steps.split(step)
    step.module[2].weight.data = step.module[0].weight.data.new_empty(400)[:256].view(16, 16)
    shared = step.module[2].weight.data.view(-1)
    step.module[2].bias.data = shared[:16]
    with pytest.raises(
        ValueError, match=r"module: 2\.bias: lies in the memory of 2\.weight|module: 2\.weight: lies in the memory of 2\.bias"
    ):
        gp.placed(step, plan)
    step = placed_steps.mlp()
    with gp.placed(step, placed_steps.split(step)) as placed:
        with pytest.raises(ValueError, match="placed: has devices that run"):
            copy.deepcopy(placed)
        with pytest.raises(gp.MeasurementError, match="not under torchrun"), pytest.MonkeyPatch.context() as patch:
            patch.setenv("WORLD_SIZE", "2")
            gp.placed(step, placed_steps.split(step))
    with pytest.raises(gp.MeasurementError, match="devices of kind gpu, and PyTorch finds no CUDA device here"):
        gp.placed(step, placed_steps.split(step, "gpu", "cpu"))


class Overwrites(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        made = x * 2
        view = made.view(-1)
        made.add_(1)
        return view, made


def test_a_result_that_is_changed_later_is_as_it_is_at_the_end() -> None:
    step = gp.TorchInference(Overwrites(), (torch.ones(2, 2),))
    for seed in range(3):
        with gp.placed(step, placed_steps.split(step, seed=seed)) as placed:
            view, made = placed(torch.ones(2, 2))
            assert torch.equal(view, made.view(-1)) and made[0, 0] == 3


class Strided(nn.Module):
    """Windows that overlap, on what arrives anywhere in the memory of messages; a look beyond a slice, by absolute offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 10))

    def forward(self, x: Tensor) -> Tensor:
        made = self.weight * x
        windows = made.as_strided((5, 6), (4, 2), 8).sin()
        beyond = made[3:5].as_strided((3, 4), (20, 1), 0).cos()
        across = (made.t() + 1).as_strided((4, 5), (10, 2), 1)
        return (windows[:3, :4] * beyond).sum() + across.exp().sum() + (made * made).sum()


@pytest.mark.parametrize("seed", range(6))
def test_a_look_at_a_storage_is_from_where_its_tensor_starts(seed: int) -> None:
    torch.manual_seed(seed)
    step = gp.TorchStep(Strided(), None, (torch.ones(12, 10),))
    net = copy.deepcopy(step.module)
    with gp.placed(step, placed_steps.split(step, seed=seed)) as placed:
        for module, run in ((net, net), (step.module, placed)):
            run(torch.full((12, 10), 0.5)).backward()
            assert module.weight.grad is not None
    torch.testing.assert_close(step.module.weight.grad, net.weight.grad)


class Zeros(nn.Module):
    """A gradient that PyTorch keeps as zeros without memory, which no kernel may change."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = (nn.Parameter(torch.tensor([1.0, -2.0, 3.0])) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight.sgn() * self.other * x).sum()


def test_a_gradient_of_zeros_without_memory() -> None:
    step = gp.TorchStep(Zeros(), None, (torch.ones(3),), "sgd")
    net = copy.deepcopy(step.module)
    for seed in range(2):
        with gp.placed(step, placed_steps.split(step, seed=seed)) as placed:
            placed(torch.ones(3)).backward()
    net(torch.ones(3)).backward()
    assert torch.equal(step.module.weight.grad, net.weight.grad)
    assert torch.equal(step.module.other.grad, 2 * net.other.grad)


class Asks(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, float]:
        return x + 1, x.sum().item()


def test_a_number_that_is_no_tensor_is_refused() -> None:
    step = gp.TorchInference(Asks(), (torch.ones(3),))
    with pytest.raises(ValueError, match=r"^module: [^\n]*needs the values of its tensors[^\n]*return x \+ 1"):
        gp.placed(step, placed_steps.split(step))


def test_cross_entropy_of_half_precision_under_autocast() -> None:
    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return cross_entropy(net(x), y)

    step = gp.TorchStep(placed_steps.mlp().module, loss, placed_steps.mlp().inputs)
    data, (net, call) = placed_steps.batches(step, 2), placed_steps.plain(step)
    expected = placed_steps.train(net, call, OPTIMIZERS["adamw"], data)
    with gp.placed(step, placed_steps.split(step)) as placed:
        assert placed_steps.train(placed, placed, OPTIMIZERS["adamw"], data) == expected
    assert_equal(placed, net)


class InPlace(nn.Module):
    """State that is written through a slice and replaced, an intermediate that is written in part, an input that is changed."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.register_buffer("rows", torch.zeros(2, 4))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.mix(x * 1.0)
        before = hidden * 2
        hidden[:, :2] += 1
        self.rows[1].copy_(hidden.detach().mean(0))
        self.mean = 0.5 * self.mean + self.rows.sum(0)
        x.mul_(0.5)
        return hidden + before * self.mean.detach() + self.rows[1]


class Conjugates(nn.Module):
    """A complex parameter, read through a lazy conjugate, the conjugate of that one, and the view of its imaginary part."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        made = x * self.filter.conj()
        again = torch.view_as_real(made.conj()[..., None].transpose(-2, -1).conj()).sum() + made.conj().imag[:, None].neg().mT.sum()
        return made.abs() + made.conj().imag + torch.view_as_real(self.filter.conj().resolve_conj()).sum() + again


def _single_ops_away(step: gp.TorchStep | gp.TorchInference, every: int) -> Iterator[gp.Plan]:
    """Every so many-th colocation group by itself on the second device."""
    problem = gp.problem(step, placed_steps.cluster("cpu", "cpu"))
    closed = units(problem.graph, "ops")
    for unit in range(0, closed.num_units, every):
        yield gp.Plan.of(problem, gp.Placement(expand(closed, (np.arange(closed.num_units) == unit).astype(np.int32))))


def _two_steps(net: nn.Module, call: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Losses, and the sum of the gradients of both."""
    net.zero_grad()
    made = []
    for _ in range(2):
        made.append(call(x))
        made[-1].backward()
    return [*made, *(parameter.grad for parameter in net.parameters())]


@pytest.mark.parametrize("every", [4, thorough(1)])
@pytest.mark.parametrize("make", [InPlace, Conjugates, lambda: nn.InstanceNorm1d(2, affine=True, track_running_stats=True)])
def test_state_is_written_where_it_is_stored_whichever_op_stands_elsewhere(make: Callable[[], nn.Module], every: int) -> None:
    net, given = make(), torch.randn(2, 4)
    step = gp.TorchStep(net, lambda net, x: net(x).square().sum(), (given,), "sgd")
    start, plain, x = copy.deepcopy(net.state_dict()), copy.deepcopy(net), given.clone()
    expected = _two_steps(plain, lambda x: step.loss(plain, x), x)
    for plan in _single_ops_away(step, every):
        net.load_state_dict(start)
        mine = given.clone()
        with gp.placed(step, plan, check=True) as placed:
            found = _two_steps(net, placed, mine)
        assert torch.equal(mine, x)
        assert_equal(net, plain)
        for value, other in zip(found, expected, strict=True):
            torch.testing.assert_close(value, other)


class Attribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.ones(2)), torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x)
        return (self.seen * self.weight).sum()


class Grows(Attribute):
    def __init__(self) -> None:
        super().__init__()
        del self.seen
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = torch.cat([self.seen, x])
        return self.seen.sum() * self.weight.sum()


@pytest.mark.parametrize(("make", "words"), [(Attribute, "neither parameter nor buffer"), (Grows, r"float32 \[0\], by float32 \[2\]")])
def test_state_that_would_be_lost_is_refused(make: Callable[[], nn.Module], words: str) -> None:
    for step in (gp.TorchStep(make(), None, (torch.ones(2),)), gp.TorchInference(make(), (torch.ones(2),))):
        with pytest.raises(ValueError, match=f"^module: .*{words}[^\n]*$"):
            gp.problem(step, placed_steps.cluster("cpu", "cpu"))


@pytest.mark.parametrize("name", ["batch norm", "dropout", "inference"])
def test_a_check_passes_what_is_equal_and_ends_what_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "inference":
        step = gp.TorchInference(nn.Linear(4, 4), (torch.ones(2, 4),))
    else:
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4) if name == "batch norm" else nn.Dropout(0.5), nn.Linear(4, 2))
        step = gp.TorchStep(net, lambda net, x: net(x).square().sum(), (torch.ones(3, 4),))
    plan, x = placed_steps.split(step), torch.randn(step.inputs[0].shape)
    with gp.placed(step, plan, seed=3, check=True) as placed:
        placed(x), placed(x)
    before, run = children(), LiveStep.run
    monkeypatch.setattr(LiveStep, "run", lambda self, inputs: [value + 0.1 for value in run(self, inputs)])
    placed = gp.placed(step, plan, check=True)
    with pytest.raises(
        gp.MeasurementError, match=r"wrong_output: \S.* differs by .* from (eager PyTorch|the traced step); 0.001 is allowed"
    ):
        placed(x)
    assert children() <= before


def test_a_check_says_where_the_unplaced_step_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    step, before = placed_steps.mlp(), children()
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    with pytest.raises(ValueError, match=r"^check: the unplaced step needs \d+ bytes, and this host has 1 free; place it without check$"):
        gp.placed(step, placed_steps.split(step), check=True)
    assert children() <= before
