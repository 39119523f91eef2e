"""Inference of PyTorch modules: small ones whose numbers are worked out by hand, and real ones against torch's own counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.training_steps import training_step
from torch import Tensor, nn

from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.inference import inference
from gnnplace.graph import CONTROL, NONE, ComputationGraph


def step_of(module: nn.Module, *inputs: Any) -> TracedStep:
    return inference(module, inputs, name="small")


def index(graph: ComputationGraph, name: str) -> int:
    return graph.op_names.index(name)


def results(graph: ComputationGraph) -> list[str]:
    return [graph.op_names[op] for op in graph.output_op[graph.output_is_result]]


def aliased(graph: ComputationGraph, name: str) -> str | None:
    source = int(graph.output_alias[graph.output_ptr[index(graph, name)]])
    return None if source == NONE else graph.op_names[graph.output_op[source]]


def two_linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))


@pytest.fixture(scope="module")
def small() -> TracedStep:
    """Linear(4, 8), ReLU in place, Linear(8, 2) on 16 rows."""
    return step_of(two_linear(), torch.zeros(16, 4))


def test_it_holds_the_forward_pass_and_nothing_else(small: TracedStep) -> None:
    graph = small.graph
    called = ["t", "addmm", "relu_", "t_1", "addmm_1"]
    assert [name for name in graph.op_names if graph.phase[index(graph, name)] == "forward"] == called
    assert set(graph.phase.values) == {"forward", "other"}
    assert [int(graph.flops[index(graph, name)]) for name in called] == [0, 2 * 16 * 4 * 8, 16 * 8, 0, 2 * 16 * 8 * 2]
    assert not small.graph.uncounted


def test_parameters_have_no_optimiser(small: TracedStep) -> None:
    graph = small.graph
    parameters = graph.kind.among(["parameter"])
    assert graph.persistent_bytes[parameters].tolist() == [4 * 4 * 8, 4 * 8, 4 * 8 * 2, 4 * 2]
    assert graph.persistent_bytes.sum() == 4 * (4 * 8 + 8 + 8 * 2 + 2)
    assert aliased(graph, "0.weight/read") == "0.weight"


def test_layers_blocks_and_results(small: TracedStep) -> None:
    graph = small.graph
    assert [graph.layer[index(graph, name)] for name in ("input_0", "addmm", "relu_", "addmm_1")] == ["inputs", "0", "1", "2"]
    assert [int(graph.block[index(graph, name)]) for name in ("input_0", "addmm", "relu_", "2.bias")] == [NONE, 0, 1, 2]
    assert results(graph) == ["addmm_1"]


def test_what_works_in_place_stands_with_its_buffer(small: TracedStep) -> None:
    graph = small.graph
    assert aliased(graph, "relu_") == "addmm"
    assert aliased(graph, "t") == "0.weight/read"
    assert graph.colocation[index(graph, "relu_")] == graph.colocation[index(graph, "addmm")] is not None
    assert not graph.kernel[index(graph, "t")]
    assert graph.kernel[index(graph, "relu_")]


def test_the_forward_pass_is_that_of_a_training_step(small: TracedStep) -> None:
    trained = training_step(two_linear(), lambda module, x: module(x).sum(), (torch.zeros(16, 4),), name="trained").graph
    forward = [op for op in range(trained.num_ops) if trained.phase[op] == "forward" and trained.layer[op] != "loss"]
    graph = small.graph
    called = [op for op in range(graph.num_ops) if graph.phase[op] == "forward"]
    for column in ("kind", "layer", "canonical_kind"):
        assert [getattr(graph, column)[op] for op in called] == [getattr(trained, column)[op] for op in forward]
    for column in ("flops", "block", "kernel"):
        assert getattr(graph, column)[called].tolist() == getattr(trained, column)[forward].tolist()


class Norm(nn.Module):
    """A convolution with batch norm, and a buffer that each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.norm(self.conv(x)) * self.calls


def test_batch_norm_reads_its_statistics_and_leaves_them() -> None:
    module = Norm().train()
    graph = step_of(module, torch.zeros(2, 3, 6, 6)).graph
    norm = index(graph, "native_batch_norm")
    read = {graph.op_names[op] for op in graph.edge_src[graph.edge_dst == norm]}
    assert {"norm.running_mean/read", "norm.running_var/read"} <= read
    assert graph.colocation[index(graph, "norm.running_mean")] == "norm.running_mean"  # with its read, and not with the norm
    assert graph.colocation[norm] is None
    assert graph.persistent_bytes[index(graph, "norm.num_batches_tracked")] == 8  # held, though nobody reads it
    assert module.training
    assert module.norm.training


def test_a_buffer_that_is_written_is_read_afterwards() -> None:
    graph = step_of(Norm(), torch.zeros(2, 3, 6, 6)).graph
    written, read = index(graph, "add_"), index(graph, "mul")
    assert aliased(graph, "add_") == "calls/read"
    assert graph.colocation[written] == "calls"
    before = {(int(s), int(o)) for s, o, d in zip(graph.edge_src, graph.edge_output, graph.edge_dst, strict=True) if d == read}
    assert (written, 0) in before or (written, CONTROL) in before


class Tied(nn.Module):
    """An embedding whose table is the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.table(tokens))


def test_a_tied_weight_is_held_and_read_once() -> None:
    graph = step_of(Tied(), torch.zeros(3, dtype=torch.int64)).graph
    assert [name for name in graph.op_names if "weight" in name] == ["table.weight", "table.weight/read"]
    assert graph.persistent_bytes.sum() == 4 * 11 * 6


@dataclass
class Answer:
    first: Tensor
    more: dict[str, Any]


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Answer:
        return Answer(x + 1, {"none": None, "pair": (x * 2, [x.t()]), "number": 3})


class Keyed(nn.Module):
    def forward(self, *, pair: tuple[Tensor, Tensor], scale: float) -> dict[str, Tensor]:
        return {"sum": pair[0] + pair[1], "scaled": pair[0] * scale}


def test_every_tensor_that_is_returned_is_a_result() -> None:
    step = step_of(Nested(), torch.zeros(2, 3))
    assert results(step.graph) == ["add", "mul", "t"]


def test_inputs_may_be_named_and_nested() -> None:
    graph = inference(Keyed(), {"pair": (torch.zeros(2), torch.zeros(2)), "scale": 2.0}, name="keyed").graph
    assert [name for name in graph.op_names if graph.kind[index(graph, name)] == "input"] == ["input_0", "input_1"]
    assert results(graph) == ["add", "mul"]


def test_meta_and_real_tensors_give_the_same_graph() -> None:
    real = step_of(Norm(), torch.zeros(2, 3, 6, 6)).graph
    with torch.device("meta"):
        meta = step_of(Norm(), torch.zeros(2, 3, 6, 6)).graph
    assert real.sha256 == meta.sha256
