"""The modules behind the PyTorch graphs compute what their names say: compared with torch's own layers, or with a dense formula."""

from __future__ import annotations

import torch
from torch import nn

from datasets.build.deepspeech2 import Direction
from datasets.build.dlrm import Interaction
from datasets.build.gcn import Convolution
from datasets.build.gru import Cell


def test_the_cell_is_torchs_gru_cell() -> None:
    torch.manual_seed(0)
    cell, expected = Cell(3, 5), nn.GRUCell(3, 5)
    names = {"input.weight": "weight_ih", "input.bias": "bias_ih", "hidden.weight": "weight_hh", "hidden.bias": "bias_hh"}
    cell.load_state_dict({name: expected.state_dict()[other] for name, other in names.items()})
    x, hidden = torch.randn(7, 3), torch.randn(7, 5)
    torch.testing.assert_close(cell(x, hidden), expected(x, hidden))


def test_two_directions_are_torchs_bidirectional_gru() -> None:
    torch.manual_seed(0)
    expected, sequence = nn.GRU(4, 5, bidirectional=True), torch.randn(6, 3, 4)
    nn.init.zeros_(expected.bias_ih_l0), nn.init.zeros_(expected.bias_ih_l0_reverse)  # the norm's offset takes its place
    outputs = []
    for suffix in ("", "_reverse"):
        direction = Direction(4, 5, backwards=bool(suffix))
        direction.norm = nn.Identity()
        names = {"input.weight": "weight_ih_l0", "hidden.weight": "weight_hh_l0", "hidden.bias": "bias_hh_l0"}
        direction.load_state_dict({name: getattr(expected, other + suffix) for name, other in names.items()})
        outputs.append(torch.stack(direction(sequence)))
    torch.testing.assert_close(torch.cat(outputs, dim=2), expected(sequence)[0])


def test_a_graph_convolution_is_a_product_with_the_adjacency_matrix() -> None:
    torch.manual_seed(0)
    layer, nodes = Convolution(4, 3), torch.randn(5, 4)
    source, target, weight = torch.tensor([0, 1, 1, 4, 2]), torch.tensor([1, 1, 3, 0, 0]), torch.randn(5)
    adjacency = torch.zeros(5, 5).index_put((target, source), weight)
    torch.testing.assert_close(layer(nodes, source, target, weight), adjacency @ nodes @ layer.linear.weight.t() + layer.bias)


def test_the_interaction_holds_every_pair_once() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(2, 7, 3)
    pairs = [vectors[:, i] @ vectors[:, j].t() for i in range(vectors.shape[1]) for j in range(i)]
    expected = torch.stack([product.diagonal() for product in pairs], dim=1)
    found = Interaction(vectors.shape[1])(vectors)
    assert torch.equal(found[:, :3], vectors[:, 0])
    torch.testing.assert_close(found[:, 3:], expected)
