"""How inference is captured: both ways give one graph, products count as torch counts them, and what can't be captured says why."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from support.torch_steps import STEPS
from support.training_steps import training_step
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.inference import inference
from gnnplace.frontends.torch.recurrences import Recurrences
from gnnplace.frontends.torch.scopes import time_step
from gnnplace.frontends.torch.step import TorchInference
from gnnplace.graph import ComputationGraph

PRODUCTS = ("matmul", "batch_matmul", "conv", "attention")


def step_of(module: nn.Module, *inputs: Any) -> TracedStep:
    return inference(module, inputs, name="small")


def product_flops(graph: ComputationGraph) -> int:
    return int(graph.flops[graph.canonical_kind.among(PRODUCTS)].sum())


def multilayer() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))


class Halved(nn.Module):
    """Autocast within."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.linear(x).float()


class Asking(nn.Module):
    """Computes more for an exporter than otherwise, as some models of transformers do."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ x @ x if torch.compiler.is_exporting() else x @ x


def test_a_module_that_asks_how_it_is_traced_is_captured_as_pytorch_runs_it() -> None:
    assert product_flops(step_of(Asking(), torch.zeros(3, 3)).graph) == 2 * 3**3


class Converting(nn.Module):
    """Converts a layer to what it is, as the router of Switch Transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.layer = self.layer.to(torch.float32)
        return self.layer(x)


def test_a_call_may_convert_a_layer_to_what_it_is() -> None:
    module = Converting()
    weight, apply = module.layer.weight, nn.Module._apply
    assert "addmm" in step_of(module, torch.zeros(3, 3)).graph.op_names
    assert module.layer.weight is weight and nn.Module._apply is apply


def test_an_autocast_within_is_traced() -> None:
    step = step_of(Halved(), torch.zeros(3, 4))
    product = step.graph.op_names.index("addmm")
    assert step.graph.layer[product] == "linear"
    assert step.graph.output_dtype[int(step.graph.output_ptr[product])] == "bfloat16"


class Constant(nn.Module):
    """A tensor that is neither parameter nor buffer, time steps, a cast and an attribute set by the call."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.shift, self.state = nn.Linear(4, 4), [torch.ones(4)], None

    def forward(self, inputs: Tensor) -> Tensor:
        self.state = torch.zeros(2, 4)
        for number, x in enumerate(inputs.unbind()):
            with time_step(number):
                self.state = torch.tanh(self.cell(self.state) + x.to(torch.float32) + self.shift[0])
        return self.state


MODULES: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "multilayer": lambda: (multilayer(), (torch.zeros(16, 4),)),
    "norm": lambda: (nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.MaxPool2d(2)), (torch.zeros(2, 3, 6, 6),)),
    "constant": lambda: (Constant(), (torch.zeros(3, 2, 4, dtype=torch.float64),)),
    "attention": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.zeros(2, 3, 8),)),
    "lstm": lambda: (nn.LSTM(4, 5, 2), (torch.zeros(3, 2, 4),)),
}


def test_time_steps_are_those_that_the_module_marks() -> None:
    graph = step_of(Constant(), torch.zeros(3, 2, 4, dtype=torch.float64)).graph
    assert graph.time_step[graph.kind.among(["aten.addmm"])].tolist() == [0, 1, 2]
    assert [graph.layer[op] for op in np.flatnonzero(graph.kind.among(["aten.tanh"])).tolist()] == ["module"] * 3


def test_the_module_keeps_what_it_was() -> None:
    module = Constant()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    step_of(module, torch.zeros(3, 2, 4, dtype=torch.float64))
    assert module.state is None
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert not module.cell._forward_hooks


def torch_counts(module: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Attention as its two products and an LSTM as those of its cells: torch counts no fused kernel of either on CPUs."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), Recurrences():
        module.eval()(*inputs)
    return counter.get_total_flops()


FEATURES = {"branches": 2, "convolutions": 1, "cells": 2, "dropout": 1, "tables": 2, "experts": 1, "views": 1}  # the rest are labels


@pytest.mark.parametrize("name", [*MODULES, *STEPS, "bert", "gpt2"])
def test_products_count_as_torch_counts_them(name: str) -> None:
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    small: dict[str, Any] = {"vocab_size": 31, "attn_implementation": "eager"}
    if name == "bert":
        widths = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
        module, inputs = BertModel(BertConfig(**small, **widths)), (tokens,)
    elif name == "gpt2":
        module, inputs = GPT2LMHeadModel(GPT2Config(**small, n_positions=8, n_embd=8, n_layer=2, n_head=2, use_cache=False)), (tokens,)
    elif name in STEPS:
        step = STEPS[name]()
        module, inputs = step.module, step.inputs[: FEATURES[name]]
    else:
        module, inputs = MODULES[name]()
    graph = step_of(module, *inputs).graph
    assert product_flops(graph) == torch_counts(module, inputs) > 0
    assert not graph.canonical_kind.among(["other"]).any()


def test_an_lstm_comes_apart_into_its_products() -> None:
    """Two layers of 5 units on 3 steps of 2 rows of width 4: the inputs' products at once, the states' step by step."""
    by_hand = 2 * 2 * 3 * (4 * 5 * (4 + 5) + 4 * 5 * (5 + 5))
    assert product_flops(step_of(nn.LSTM(4, 5, 2), torch.zeros(3, 2, 4)).graph) == by_hand
    trained = training_step(nn.LSTM(4, 5, 2), lambda m, x: m(x)[0].sum(), (torch.zeros(3, 2, 4),), name="trained")
    assert not trained.graph.uncounted
    assert product_flops(trained.graph) > 2 * by_hand


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Filtering(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


class Scaling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.sum().item()


class Counting(nn.Module):
    def forward(self, x: Tensor) -> int:
        return len(x)


class Mismatched(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ x


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Branching(), ("aten._local_scalar_dense", "x if x.sum() > 0 else -x", "torch.where")),
        (Filtering(), ("aten.nonzero", "return x[x > 0]", "torch.where")),
        (Scaling(), ("aten._local_scalar_dense", "x * x.sum().item()", "torch.where")),
        (Mismatched(), ("RuntimeError", "[3, 4] X [3, 4]", "return x @ x", "check that the module runs")),
        (Counting(), ("returns no tensor", "return the wanted tensors")),
        (nn.LazyLinear(4), ("weight", "no shape", "call the module once")),
    ],
)
def test_what_cannot_be_captured_says_why_and_what_to_try(module: nn.Module, said: tuple[str, ...], capfd: Any) -> None:
    with pytest.raises(ValueError, match=r"^module: ") as raised:
        step_of(module, torch.zeros(3, 4))
    message = str(raised.value)
    assert all(part in message for part in said), json.dumps(message)
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")


def test_an_inference_is_a_workload() -> None:
    assert (
        TorchInference(multilayer(), (torch.zeros(16, 4),)).traced("small").graph.sha256
        == step_of(multilayer(), torch.zeros(16, 4)).graph.sha256
    )
