"""Sparse embeddings of the PyTorch front-end: what a step costs, and that it is the step of torch's own sparse SGD."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from support.training_steps import training_step
from torch import Tensor, nn

from gnnplace.frontends.torch.flat_step import Updating
from gnnplace.frontends.torch.optimizers import SGD_RATE, built, rules
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.frontends.torch.trace import trace
from gnnplace.graph import NONE, ComputationGraph

ROWS, WIDTH, BATCH = 1000, 8, 16


class Scored(nn.Module):
    """A table, looked up twice, and a layer over the sum of both rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, sparse=True)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(torch.tanh(self.table(ids[0]) * self.table(ids[1])))


def summed(module: nn.Module, ids: Tensor) -> Tensor:
    return module(ids).sum()


@pytest.fixture(scope="module")
def graph() -> ComputationGraph:
    return training_step(Scored(), summed, (torch.zeros(2, BATCH, dtype=torch.int64),), optimizer="sgd", name="sparse").graph


def ops(graph: ComputationGraph, kind: str) -> list[int]:
    return np.flatnonzero(graph.kind.among([kind])).tolist()


def test_the_table_is_never_read_or_written_as_a_whole(graph: ComputationGraph) -> None:
    assert graph.persistent_bytes[graph.op_names.index("table.weight")] == 4 * ROWS * WIDTH
    small = graph.effective_bytes_accessed[graph.kernel] < 4 * ROWS * WIDTH
    assert small.all()
    owned = graph.output_alias == NONE
    assert graph.output_bytes[owned].max() < 4 * ROWS * WIDTH


def test_each_lookup_has_an_update_of_its_rows_that_stands_with_the_table(graph: ComputationGraph) -> None:
    updates = ops(graph, "aten.index_add_")
    rows, indices = 4 * BATCH * WIDTH, 8 * BATCH
    assert len(updates) == len(ops(graph, "aten.embedding")) == 2
    for op in updates:
        assert (graph.phase[op], graph.layer[op], graph.colocation[op]) == ("update", "table", "table.weight")
        assert graph.flops[op] == BATCH * WIDTH
        assert graph.bytes_accessed[op] == 3 * rows + indices  # gradient and rows are read, rows written


def test_the_step_is_that_of_torchs_sparse_sgd() -> None:
    torch.manual_seed(0)
    module, ids = Scored(), torch.tensor([[2, 5, 2], [7, 5, 9]])
    traced = trace(module, summed, (ids,), Updating("sgd"))
    values = [tensor.detach().clone() for tensor in (*module.parameters(), *module.buffers())]
    torch.fx.GraphModule({}, traced.graph)(*values, ids)
    optimizer = torch.optim.SGD(module.parameters(), lr=SGD_RATE)
    summed(module, ids).backward()
    optimizer.step()
    for found, expected in zip(values, module.parameters(), strict=True):
        torch.testing.assert_close(found, expected.detach())


def test_adam_has_no_sparse_update() -> None:
    with pytest.raises(ValueError, match=r"table\.weight: optimizer Adam has no sparse update"):
        training_step(Scored(), summed, (torch.zeros(2, BATCH, dtype=torch.int64),), name="sparse")


class Tied(nn.Module):
    """The table is the head's weight, too: its gradient there is dense."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(ROWS, WIDTH, sparse=True), nn.Linear(WIDTH, ROWS, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(ids)))


class Regularized(Scored):
    """The norm of the table is a part of the output."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * self.table.weight.norm()


class Twice(nn.Module):
    """Two layers with one table."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Embedding(ROWS, WIDTH, sparse=True), nn.Embedding(ROWS, WIDTH, sparse=True)
        self.right.weight = self.left.weight

    def forward(self, ids: Tensor) -> Tensor:
        return torch.tanh(self.left(ids[0]) * self.right(ids[1]))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("build", [Tied, Regularized])
def test_a_table_that_is_also_read_as_a_whole_has_the_dense_gradient_of_torch(build: Callable[[], nn.Module], optimizer: str) -> None:
    torch.manual_seed(0)
    module, ids = build(), torch.tensor([[2, 5, 2], [7, 5, 9]])
    traced = trace(module, summed, (ids,), Updating(optimizer))
    rule = rules(built(optimizer, module), module)
    parameters = dict(module.named_parameters())
    held = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    states = {name: rule[name].initial(parameters[name]) for name in rule}
    values = [
        states[each.name][each.key] if each.role == "state" else ids if each.role == "input" else held[each.name]
        for each in traced.arguments
    ]
    torch.fx.GraphModule({}, traced.graph)(*values)
    summed(module, ids).backward()
    built(optimizer, module)[0].step()
    for name, parameter in parameters.items():
        torch.testing.assert_close(held[name], parameter.detach())


def test_a_dense_gradient_of_a_table_adds_the_rows_to_it_and_may_be_clipped() -> None:
    ids = (torch.zeros(2, BATCH, dtype=torch.int64),)
    graph = TorchStep(Regularized(), summed, ids, "adam", clip_norm=1.0).computation_graph("n")
    rows = ops(graph, "aten.index_add_")
    assert [graph.flops[op] for op in rows] == 2 * [BATCH * WIDTH]
    assert {(graph.phase[op], graph.layer[op]) for op in rows} == {("backward_weight", "table")}
    assert graph.persistent_bytes[graph.op_names.index("table.weight")] == 4 * (3 * ROWS * WIDTH + 1)


def test_two_layers_may_share_a_table() -> None:
    ids = torch.zeros(2, BATCH, dtype=torch.int64)
    graph = training_step(Twice(), summed, (ids,), optimizer="sgd", name="sparse").graph
    assert [graph.colocation[op] for op in ops(graph, "aten.index_add_")] == 2 * ["left.weight"]
    assert (graph.effective_bytes_accessed[graph.kernel] < 4 * ROWS * WIDTH).all()


def test_a_table_that_no_optimiser_updates_has_no_update() -> None:
    module = Scored()
    step = TorchStep(module, summed, (torch.zeros(2, BATCH, dtype=torch.int64),), torch.optim.Adam(module.out.parameters()))
    assert not ops(step.computation_graph("n"), "aten.index_add_")


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(ROWS, WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.table, sparse=True)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Functional(), "module: table: its gradient: has the layout sparse_coo"),
        (nn.Embedding(ROWS, WIDTH, 0, sparse=True), "padding_idx"),
    ],
)
def test_what_a_sparse_update_would_miss_is_refused(module: nn.Module, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        training_step(module, summed, (torch.zeros(BATCH, dtype=torch.int64),), optimizer="sgd", name="sparse")


def test_clipping_of_a_sparse_gradient_is_refused() -> None:
    ids = (torch.zeros(2, BATCH, dtype=torch.int64),)
    with pytest.raises(ValueError, match=r"table\.weight: clip_\.\.\. is for dense gradients"):
        TorchStep(Scored(), summed, ids, "sgd", clip_norm=1.0).computation_graph("n")


def test_micro_batches_update_all_their_rows_at_once() -> None:
    step = TorchStep(Scored(), summed, (torch.zeros(2 * 3, BATCH, dtype=torch.int64),), "sgd", micro_batches=3)
    graph = step.computation_graph("n")
    assert [graph.flops[op] for op in ops(graph, "aten.index_add_")] == 2 * [3 * BATCH * WIDTH]
