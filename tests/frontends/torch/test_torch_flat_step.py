"""A traced training step runs what eager PyTorch runs: op by op, whatever reads the results."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gnnplace.frontends.torch.flat_step import Updating
from gnnplace.frontends.torch.scopes import scope_of
from gnnplace.frontends.torch.step import TorchInference, TorchStep
from gnnplace.frontends.torch.trace import Trace, trace

PRODUCTS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight")
Loss = Callable[..., Tensor]


class Calls(TorchDispatchMode):
    """Counts the calls that compute; views, and memory that is only allocated, are none."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[str(func)] += computes(func)
        return func(*args, **(kwargs or {}))


def computes(func: Any) -> bool:
    return not func.is_view and "empty" not in str(func) and func is not torch.ops.aten._unsafe_view.default


def eager(module: nn.Module, loss: Loss, inputs: tuple[Tensor, ...]) -> Counter[str]:
    inputs = tuple(value.detach().clone().requires_grad_(value.requires_grad) for value in inputs)
    module = copy.deepcopy(module)
    with Calls() as calls:
        loss(module, *inputs).backward()
    return +calls.count


def traced(module: nn.Module, loss: Loss, inputs: tuple[Tensor, ...]) -> Counter[str]:
    nodes = [node for node in step(module, loss, inputs).graph.nodes if node.op == "call_function"]
    functions = [node.target for node in nodes if scope_of(node).phase != "update"]
    return Counter(str(function) for function in functions if hasattr(function, "is_view") and computes(function))


def step(module: nn.Module, loss: Loss, inputs: tuple[Tensor, ...]) -> Trace:
    return trace(module, loss, inputs, Updating("sgd"))


class Net(nn.Module):
    """Sums of parameters that share a gradient, a tied table, a buffer that is written and an output that is not read."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.pooler = nn.Embedding(30, 16), nn.Linear(16, 9)
        self.conv, self.norm = nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.table.weight
        self.left, self.right = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.zeros(16))

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.table(ids) + (self.left + self.right)
        hidden = self.norm(self.conv(hidden.transpose(1, 2))).transpose(1, 2)
        hidden = self.layer(hidden)
        return self.head(hidden), self.pooler(hidden[:, 0]).tanh()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def token_loss(module: nn.Module, ids: Tensor) -> Tensor:
    return functional.cross_entropy(module(ids)[0].flatten(0, 1), ids.flatten())


def square(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).square().mean()


def checkpointed(reentrant: bool) -> Loss:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return checkpoint(module, x, use_reentrant=reentrant).square().mean()

    return loss


def cast(module: nn.Module, x: Tensor, **how: Any) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, **how):
        for _ in range(4):
            x = module(x)
    return x.float().square().mean()


def nested(module: nn.Module, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = module(x)
        with torch.autocast("cpu", enabled=False):
            x = module(x.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = module(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module(x).float().mean()


def frozen(module: nn.Module) -> nn.Module:
    module.get_parameter("0.weight").requires_grad_(False)
    return module


X = torch.ones(4, 8)
NEEDS = torch.ones(4, 8, requires_grad=True)
STEPS: Mapping[str, tuple[Callable[[], nn.Module], Loss, tuple[Tensor, ...]]] = {
    "all sorts": (Net, token_loss, (torch.zeros(2, 7, dtype=torch.int64),)),
    "an input that requires a gradient": (perceptron, square, (NEEDS,)),
    "a checkpoint": (perceptron, checkpointed(False), (X,)),
    "a reentrant checkpoint": (perceptron, checkpointed(True), (NEEDS,)),
    "autocast": (perceptron, cast, (X,)),
    "autocast without a cache": (perceptron, lambda module, x: cast(module, x, cache_enabled=False), (X,)),
    "autocast in autocast": (perceptron, nested, (X,)),
    "autocast of a frozen weight": (lambda: frozen(perceptron()), cast, (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_the_traced_step_calls_what_eager_pytorch_calls(name: str) -> None:
    build, loss, inputs = STEPS[name]
    module = build()
    assert traced(module, loss, inputs) == eager(module, loss, inputs)


def test_a_gradient_that_no_optimiser_uses_is_computed() -> None:
    module = perceptron()
    last = torch.optim.SGD(module.get_submodule("2").parameters(), lr=0.1)
    some, every = (TorchStep(module, square, (X,), how).computation_graph("n") for how in (last, "sgd"))
    assert some.flops[~some.phase.among(["update"])].sum() == every.flops[~every.phase.among(["update"])].sum()
    assert some.phase.among(["update"]).sum() == 2


def test_a_module_that_a_checkpoint_calls_again_reads_its_parameters() -> None:
    for reentrant in (False, True):
        graph = TorchStep(perceptron(), checkpointed(reentrant), (NEEDS,), "sgd").computation_graph("n")
        assert not graph.kind.among(["constant"]).any()
        again = graph.kind.among(["aten.addmm"]) & ~graph.phase.among(["forward"])
        assert {str(graph.layer[int(op)]) for op in again.nonzero()[0]} <= {"0", "2"} and again.any()


def test_what_is_no_tensor_of_the_step_keeps_its_gradient() -> None:
    module, factor = perceptron(), torch.ones(8, requires_grad=True)
    factor.grad = torch.full((8,), 3.0)
    step(module, lambda module, x: (module(x) * factor).sum(), (NEEDS,))
    assert torch.equal(factor.grad, torch.full((8,), 3.0)) and NEEDS.grad is None
    assert all(parameter.grad is None for parameter in module.parameters())


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.pooler = nn.Linear(8, 8), nn.Linear(8, 64)

    def forward(self, x: Tensor) -> Tensor:
        self.pooler(x).tanh()
        return self.used(x)


@pytest.mark.parametrize("training", [True, False])
def test_products_that_nobody_reads_count_as_torch_counts_them(training: bool) -> None:
    module = Pooled()
    with FlopCounterMode(display=False) as counter:
        square(module, X).backward() if training else module(X)
    how = TorchStep(module, square, (X,)) if training else TorchInference(module, (X,))
    graph = how.computation_graph("n")
    assert graph.flops[graph.canonical_kind.among(PRODUCTS)].sum() == counter.get_total_flops()
    assert graph.kind.among(["aten.tanh"]).sum() == 1
    assert not graph.kind.among(["aten.empty", "aten.detach"]).any()


@pytest.mark.parametrize("within", [True, False])
def test_inference_casts_a_weight_once(within: bool) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=within or torch.is_autocast_enabled("cpu")):
                return self.layer(self.layer(x))

    module = Cast()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not within):
        graph = TorchInference(module, (X,)).computation_graph("n")
        with Calls() as calls, torch.no_grad():
            module(X)
    assert graph.kind.among(["aten._to_copy"]).sum() == calls.count["aten._to_copy.default"] == 2
