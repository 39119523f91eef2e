"""Sparse embeddings of the PyTorch front-end: what a step costs, and that it is the step of torch's own sparse SGD."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.training_steps import training_step
from torch import Tensor, nn

from gnnplace.frontends.torch.flat_step import Updating
from gnnplace.frontends.torch.optimizers import SGD_RATE
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
        return self.head(self.table(ids))


@pytest.mark.parametrize(
    ("module", "words"),
    [(Tied(), r"table\.weight: a sparse table that is used as another"), (nn.Embedding(ROWS, WIDTH, 0, sparse=True), "padding_idx")],
)
def test_what_a_sparse_update_would_miss_is_refused(module: nn.Module, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        training_step(module, summed, (torch.zeros(BATCH, dtype=torch.int64),), optimizer="sgd", name="sparse")
