"""Packed sequences whose lengths are numbers: every size is fixed, and the work is that of the lengths' sum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import placed_steps
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import gnnplace as gp
from gnnplace.isolation.worker import usable_cores

LENGTHS = [5, 2, 2]


class Packs(nn.Module):
    """Packs padded sequences, runs a recurrent layer on them, and pads its results."""

    def __init__(self, layer: type[nn.RNNBase], lengths: Any, batch_first: bool = True, **options: Any) -> None:
        super().__init__()
        self.rnn = layer(4, 3, batch_first=batch_first, **options)
        self.lengths, self.batch_first = lengths, batch_first

    def forward(self, x: Tensor) -> Tensor:
        is_sorted = list(self.lengths) == sorted(self.lengths, reverse=True)
        packed = pack_padded_sequence(x, self.lengths, batch_first=self.batch_first, enforce_sorted=is_sorted)
        padded, lengths = pad_packed_sequence(self.rnn(packed)[0], batch_first=self.batch_first, padding_value=7.0)
        return padded * lengths[0]


class Takes(nn.Module):
    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = layer(4, 3)

    def forward(self, packed: PackedSequence) -> PackedSequence:
        return self.rnn(packed)[0]


MODULES = {
    "gru": lambda: Packs(nn.GRU, LENGTHS),
    "lstm, two directions": lambda: Packs(nn.LSTM, torch.tensor(LENGTHS), bidirectional=True, num_layers=2),
    "rnn, time first": lambda: Packs(nn.RNN, LENGTHS, batch_first=False),
    "unsorted": lambda: Packs(nn.GRU, [2, 5, 1]),
    "projected": lambda: Packs(nn.LSTM, LENGTHS, proj_size=2),
}


def example(module: Packs) -> Tensor:
    return torch.randn(3, 5, 4) if module.batch_first else torch.randn(5, 3, 4)


@pytest.mark.slow
@pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("trains", [True, False])
def test_packed_sequences_give_what_pytorch_computes(name: str, trains: bool) -> None:
    module = MODULES[name]()
    x = example(module)
    step: Any = gp.TorchStep(module, lambda net, x: net(x).square().sum(), (x,)) if trains else gp.TorchInference(module, (x,))
    with gp.placed(step, placed_steps.split(step, seed=3), check=True) as model:
        torch.testing.assert_close(model(x), step.loss(module, x) if trains else module(x))


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("lengths", [LENGTHS, [5, 5, 5]])
def test_a_layer_works_for_the_sum_of_lengths(layer: type[nn.RNNBase], lengths: list[int]) -> None:
    module = Packs(layer, lengths)
    graph = gp.TorchInference(module, (example(module),)).computation_graph("net")
    products = graph.flops[graph.canonical_kind.among(["matmul", "batch_matmul"])].sum()
    gates = {nn.GRU: 3, nn.LSTM: 4, nn.RNN: 1}[layer]
    assert products == 2 * sum(lengths) * gates * 3 * (4 + 3)


@pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
def test_a_packed_sequence_is_an_input_and_a_result() -> None:
    module, x = Takes(nn.LSTM), torch.randn(5, 4, 4)
    packed = pack_padded_sequence(x, [2, 5, 1, 3], enforce_sorted=False)
    step = gp.TorchInference(module, (packed,))
    with gp.placed(step, placed_steps.split(step, seed=3)) as model:
        result, expected = model(packed), module(packed)
        assert isinstance(result, PackedSequence) and torch.equal(result.data, expected.data)
        assert torch.equal(result.batch_sizes, expected.batch_sizes)
        with pytest.raises(ValueError, match=r"batch_sizes\[1\]: is 4, and the step was placed with 3; such values are part of the step"):
            model(pack_padded_sequence(x, [2, 5, 2, 2], enforce_sorted=False))


def test_lengths_of_an_input_are_refused_with_what_helps() -> None:
    class Given(Packs):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
            self.lengths = lengths
            return pack_padded_sequence(x, lengths, batch_first=True).data

    inputs = (torch.zeros(3, 5, 4), torch.tensor(LENGTHS))
    with pytest.raises(ValueError, match=r'^module: [^\n]*\(return pack_padded[^\n]*sizes="example" takes them'):
        gp.TorchInference(Given(nn.GRU, None), inputs).computation_graph("net")
    graph = gp.TorchInference(Given(nn.GRU, None), inputs, sizes="example").computation_graph("net")
    assert (sum(LENGTHS), 4) in [graph.shape(output) for output in range(len(graph.output_bytes))]


@pytest.mark.parametrize(("lengths", "words"), [([2, 5], "descending"), ([5, 0], "above 0")])
def test_lengths_that_pytorch_refuses_are_refused(lengths: list[int], words: str) -> None:
    class Sorted(Packs):
        def forward(self, x: Tensor) -> Tensor:
            return pack_padded_sequence(x, self.lengths, batch_first=True).data

    with pytest.raises(ValueError, match=f"^module: [^\n]*{words}"):
        gp.TorchInference(Sorted(nn.GRU, lengths), (torch.zeros(2, 5, 4),)).computation_graph("net")


class Ctc(nn.Module):
    """A CTC loss whose lengths are numbers, constants or inputs."""

    def __init__(self, lengths: Any, **options: Any) -> None:
        super().__init__()
        self.linear, self.lengths, self.options = nn.Linear(4, 5), lengths, options

    def forward(self, x: Tensor, targets: Tensor, *lengths: Tensor) -> Tensor:
        loss = nn.functional.ctc_loss(self.linear(x).log_softmax(-1), targets, *(lengths or self.lengths), **self.options)
        return loss.sum()


NUMBERS, CONSTANTS = ((6, 5), (3, 2)), (torch.tensor([6, 5]), torch.tensor([3, 2]))


@pytest.mark.slow
@pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")
@pytest.mark.parametrize("lengths", [NUMBERS, CONSTANTS])
@pytest.mark.parametrize("options", [{}, {"reduction": "sum", "zero_infinity": True}, {"reduction": "none"}])
def test_a_ctc_loss_of_known_lengths_is_that_of_pytorch(lengths: Any, options: dict[str, Any]) -> None:
    module, inputs = Ctc(lengths, **options), (torch.randn(6, 2, 4), torch.randint(1, 5, (2, 3)))
    step = gp.TorchStep(module, None, inputs)
    with gp.placed(step, placed_steps.split(step, seed=3), check=True) as model:
        torch.testing.assert_close(model(*inputs), module(*inputs))


def test_a_ctc_loss_of_lengths_in_tensors_is_refused_with_what_helps() -> None:
    inputs = (torch.randn(6, 2, 4), torch.randint(1, 5, (2, 3)), *CONSTANTS)
    with pytest.raises(
        ValueError, match=r"^module: aten._ctc_loss[^\n]*; give the lengths of inputs and targets as tuples of ints, or sizes="
    ):
        gp.TorchStep(Ctc(None), None, inputs).computation_graph("net")
    assert gp.TorchStep(Ctc(None), None, inputs, sizes="example").computation_graph("net").name == "net, sizes of the example"
