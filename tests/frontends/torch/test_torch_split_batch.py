"""A step's batch is split into micro-batches along dimension 0, and captured from one of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gnnplace.frontends.origin import step_of
from gnnplace.frontends.torch.split_batch import SplitBatch
from gnnplace.frontends.torch.step import TorchInference, TorchStep

X, MASK, SCALE = torch.arange(32.0).reshape(8, 4).requires_grad_(), torch.ones(2, 4), torch.tensor(3.0)


class Net(nn.Linear):
    def forward(self, x: Tensor, mask: Tensor, scale: Tensor) -> Tensor:
        return super().forward(x * mask.sum(0)) * scale


def loss(module: nn.Module, x: Tensor, mask: Tensor, scale: Tensor) -> Tensor:
    return module(x, mask, scale).square().mean()


@pytest.mark.parametrize("trains", [True, False])
def test_the_graph_is_that_of_micro_batches_of_the_split_inputs(trains: bool) -> None:
    def graph(rows: int, **how: Any) -> Any:
        inputs = {"x": X[:rows].detach(), "mask": MASK, "scale": SCALE}
        step = TorchStep(Net(4, 2), loss, inputs, **how) if trains else TorchInference(Net(4, 2), inputs, **how)
        return step.computation_graph("n")

    small, whole = graph(2), graph(8, micro_batches=4, shared=["input_1"])
    assert whole.copies.micro_batches == 4 and whole.copies.original.sha256 == small.sha256
    inputs = {name for name in whole.op_names if name.startswith("input")}
    assert inputs == {"input_0@0", "input_0@1", "input_0@2", "input_0@3", "input_1", "input_2"}
    assert graph(8, micro_batches=1).sha256 == graph(8).sha256 and step_of(whole).micro_batches == 4


def test_parts_are_views_of_the_batch_in_its_structure() -> None:
    batch = SplitBatch([{"x": (X, SCALE)}, 7, MASK], 2, ("input_2",))
    (nested, seven, mask) = batch.micro_batch
    x, scale = nested["x"]
    assert (x.tolist(), seven, scale is not SCALE) == (X[:4].tolist(), 7, True)
    assert x.requires_grad and x.is_leaf and not mask.requires_grad
    parts = batch.split([X + 1, SCALE, MASK])
    assert [part[0].tolist() for part in parts] == [(X[:4] + 1).tolist(), (X[4:] + 1).tolist()] and parts[1][2] is MASK


def test_the_batch_may_be_another_dimension():
    tensors = (torch.arange(24).reshape(3, 8), torch.arange(8))
    batch = SplitBatch(tensors, 2, batch_dim=(1, 0))
    assert [part.tolist() for part in batch.split(tensors)[1]] == [tensors[0][:, 4:].tolist(), [4, 5, 6, 7]]
    lstm, x = nn.LSTM(4, 4), torch.zeros(6, 8, 4)

    def loss(module: nn.Module, x: Tensor) -> Tensor:
        return module(x)[0].square().mean()

    step = TorchStep(lstm, loss, (x,), micro_batches=4, batch_dim=1)
    assert step.of_micro_batch().inputs[0].shape == (6, 2, 4) and step.of_micro_batch().batch.micro_batch[0].shape == (6, 2, 4)
    one = TorchStep(lstm, loss, (x[:, :2],)).computation_graph("n")
    assert step.computation_graph("n").original.sha256 == one.sha256
    sizes = TorchInference(lstm, (x,), micro_batches=2, batch_dim=1).computation_graph("n").original
    assert sizes.shape(sizes.op_names.index("input_0")) == (6, 4, 4)


PACKED = nn.utils.rnn.pack_padded_sequence(torch.zeros(3, 2, 4), [3, 1])
WHOLE = 'name that of the batch (batch_dim=1) or, if all micro-batches read it whole, give shared=("input_1",)'
WRONG: dict[str, tuple[Any, ...]] = {
    "micro_batches: True is no number of micro-batches; an integer of at least 1": ((X,), True),
    "micro_batches: 0 is no number of micro-batches; an integer of at least 1": ((X,), 0),
    "micro_batches: 3 don't divide the 8 rows of the batch": ((X,), 3),
    f"inputs: input_1 of shape [2, 4] has 2 rows along dimension 0, not the 8 of the batch; {WHOLE}": ((X, MASK), 2),
    f"inputs: input_1 of shape [8, 4] has 4 rows along dimension 1, not the 8 of the batch; {WHOLE}": ((X[0, 0].expand(2, 8), X), 2, (), 1),
    "batch_dim: input_0 of shape [8] has no dimension 1": ((X[:, 0],), 2, (), 1),
    "batch_dim: -1 is no dimension, nor one for each tensor; integers of at least 0": ((X,), 2, (), -1),
    "batch_dim: True is no dimension, nor one for each tensor; integers of at least 0": ((X,), 2, (), True),
    "batch_dim: (1, 0) has 2 dimensions, and the inputs have 1 tensors": ((X,), 2, (), (1, 0)),
    "inputs: no tensor has a batch dimension, so there is nothing to split into micro-batches": ((SCALE, X), 2, ("input_1",)),
    "inputs: a packed sequence has no batch dimension to split; give a padded tensor and lengths": ((PACKED,), 2),
    "shared: 'x' is no tensor of the inputs; those are input_0, input_1": ({"x": X, "y": MASK}, 1, ("x",)),
    "shared: 'input_0' is no sequence of names; give a single input as ('input_0',)": ((X, MASK), 2, "input_0"),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_cannot_be_split_is_refused(words: str) -> None:
    with pytest.raises(ValueError) as refused:
        SplitBatch(*WRONG[words])
    assert str(refused.value) == words
