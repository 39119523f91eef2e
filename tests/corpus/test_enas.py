"""The generated families: members are what their search spaces allow, differ, can be built again, and count what torch counts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from datasets.build import enas, enas_cells, enas_recurrent, nmt_variations
from datasets.build_generated import generated
from gnnplace.corpus import store
from gnnplace.formats.graphs import read_graph

ONE_EACH = ("enas-cifar10-00", "enas-ptb-00", "enas-nmt-00")
INDICES = range(enas.MEMBERS)
BUILD_TWICE = f"""
import sys
from pathlib import Path
from datasets.build_generated import generated
from gnnplace.corpus import store
for name in {ONE_EACH}:
    store.save(generated(name), Path(sys.argv[1]) / f"{{name}}.arrow")
    print(generated(name).sha256)
"""


def meta_step(name):
    with torch.device("meta"):
        return enas.step(name)


def drawn(sampled, family, index):
    return sampled(np.random.default_rng([enas.FAMILIES.index(family), index]))


def test_there_are_32_members_of_three_families():
    assert len(set(enas.NAMES)) == 96
    assert enas.NAMES[0] == "enas-cifar10-00" and enas.NAMES[-1] == "enas-nmt-31"


@pytest.mark.parametrize(
    ("family", "sampled"), [("cifar10", enas_cells.sampled), ("ptb", enas_recurrent.sampled), ("nmt", nmt_variations.sampled)]
)
def test_no_two_members_are_equal(family, sampled):
    assert len({drawn(sampled, family, index) for index in INDICES}) == enas.MEMBERS


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Each of these members, and its checksum when it is built again; from a process of its own, where no types are checked."""
    folder = tmp_path_factory.mktemp("members")
    printed = subprocess.run(
        [sys.executable, "-c", BUILD_TWICE, str(folder)], capture_output=True, text=True, check=True, timeout=900
    ).stdout.split()  # fmt: skip
    return {name: (store.load(folder / f"{name}.arrow"), again) for name, again in zip(ONE_EACH, printed, strict=True)}


@pytest.mark.parametrize("name", ONE_EACH)
def test_graphs_are_a_training_step_of_a_few_thousand_ops(name, traced):
    graph, _ = traced[name]
    assert graph.name == name and 1_000 < graph.num_ops < 5_000
    assert {"forward", "backward_data", "backward_weight", "update"} <= set(graph.phase.values)
    assert "other" not in graph.canonical_kind.values


@pytest.mark.parametrize("name", ONE_EACH)
def test_a_member_built_again_is_the_same(name, traced):
    graph, again = traced[name]
    assert graph.sha256 == again


def test_a_member_is_written_as_json(traced, tmp_path):
    graph, path = traced["enas-nmt-00"][0], tmp_path / "member.json"
    command = [sys.executable, "-m", "datasets.build_generated", graph.name, "-o", str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout
    assert read_graph(path).sha256 == graph.sha256 and graph.sha256 in printed


def test_an_unknown_member_is_refused():
    for name in ("enas-cifar10-32", "enas-ptb-0", "nmt"):
        with pytest.raises(ValueError, match=f"'{name}' is none of enas-cifar10-00 to -31, enas-ptb-00 to -31, enas-nmt-00 to -31"):
            generated(name)


@pytest.mark.parametrize("index", INDICES)
def test_convolutional_cells_are_of_the_micro_search_space(index):
    cell = drawn(enas_cells.sampled, "cifar10", index)
    assert len(cell) == enas_cells.NODES
    for number, node in enumerate(cell, enas_cells.INPUTS):
        assert all(0 <= source < number for source in node.sources) and set(node.operations) <= set(enas_cells.OPERATIONS)
    taken = {source for node in cell for source in node.sources}
    assert taken | set(enas_cells.loose_ends(cell)) >= set(range(enas_cells.INPUTS, enas_cells.INPUTS + enas_cells.NODES))
    assert not taken & set(enas_cells.loose_ends(cell))


@pytest.mark.parametrize("index", INDICES)
def test_recurrent_cells_are_trees(index):
    cell = drawn(enas_recurrent.sampled, "ptb", index)
    assert len(cell) == 12 and cell[0].source == -1
    assert all(0 <= node.source < number for number, node in enumerate(cell) if number)
    assert {node.activation for node in cell} <= set(enas_recurrent.ACTIVATIONS)


def test_a_reduction_cell_halves_and_doubles():
    identity, window = ("identity", "conv3"), ("max", "avg")
    cell = (enas_cells.Node((0, 1), identity), enas_cells.Node((2, 0), window), enas_cells.Node((1, 1), ("conv5", "identity")))
    network = enas_cells.Network(cell, cell, cells=3, filters=4)
    assert enas_cells.loose_ends(cell) == (3, 4)
    shapes = []
    for part in network.cells:
        part.register_forward_hook(lambda _, __, output: shapes.append(tuple(output.shape[1:])))
    assert network(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert shapes == [(8, 32, 32), (16, 16, 16), (16, 16, 16), (32, 8, 8), (32, 8, 8)]


def test_a_recurrent_cell_is_the_mean_of_its_loose_ends():
    """A cell of three nodes, written out."""
    torch.manual_seed(0)
    nodes = (enas_recurrent.Node(-1, "tanh"), enas_recurrent.Node(0, "relu"), enas_recurrent.Node(0, "sigmoid"))
    cell, word, state = enas_recurrent.Cell(nodes, 4), torch.randn(2, 4), torch.randn(2, 4)
    first, second, third = (node.product.weight.t() for node in cell.nodes.values())

    def highway(source, product, activation):
        gate = torch.sigmoid(product[:, 4:])
        return gate * activation(product[:, :4]) + (1 - gate) * source

    root = highway(state, torch.cat([word, state], dim=1) @ first, torch.tanh)
    expected = (highway(root, root @ second, torch.relu) + highway(root, root @ third, torch.sigmoid)) / 2
    torch.testing.assert_close(cell(word, state), expected)


def test_the_lstm_is_torchs():
    torch.manual_seed(0)
    cell, expected = nmt_variations.LSTM(3, 5), nn.LSTMCell(3, 5)
    nn.init.zeros_(expected.bias_hh)
    weight = torch.cat([expected.weight_ih, expected.weight_hh], dim=1)
    cell.product.load_state_dict({"weight": weight, "bias": expected.bias_ih})
    x, before = torch.randn(7, 3), (torch.randn(7, 5), torch.randn(7, 5))
    torch.testing.assert_close(cell(x, before), expected(x, before))


@pytest.mark.parametrize("attention", ["first", "last"])
@pytest.mark.parametrize("both_ways", [True, False])
def test_translators_learn_from_every_parameter(attention, both_ways):
    torch.manual_seed(0)
    variation = nmt_variations.Variation(3, 8, 4, 2, attention, both_ways, residual=True)
    translator = nmt_variations.Translator(variation, vocabulary=11)
    tokens = [torch.randint(11, (4, 2)) for _ in range(3)]
    translator(*tokens).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in translator.parameters())


def test_parameters_are_those_counted_by_hand(traced):
    """cifar10-00: stem 1,740; inputs of cells 98,400; operations 243,600; head 2,410. ptb-00: 10,000 x 720, and 13 products of 720 x 1440.

    nmt-00: two tables of 32,000 x 256; encoder 2 x 197,120 and 3 x 525,312; decoder 4 x 787,456; attention 131,328; head 8,224,000.
    """
    expected = (1_740 + 98_400 + 243_600 + 2_410, 7_200_000 + 13 * 720 * 1_440, 16_384_000 + 394_240 + 1_575_936 + 3_149_824 + 8_355_328)
    for name, parameters in zip(ONE_EACH, expected, strict=True):
        assert sum(parameter.numel() for parameter in meta_step(name).module.parameters()) == parameters
        graph, _ = traced[name]
        trained = graph.kind.among(["parameter"])
        state = 4 * parameters if "ptb" in name else 12 * parameters + 4 * np.count_nonzero(trained)
        assert graph.persistent_bytes[trained].sum() == state


@pytest.mark.parametrize("name", ONE_EACH)
def test_products_count_as_torch_counts_them(name, traced):
    """Torch counts gradients of grouped convolutions as if ungrouped: so backward is twice forward, but for the gradient of the images."""
    (graph, _), step = traced[name], meta_step(name)
    with FlopCounterMode(display=False) as counter:
        step.loss(step.module, *step.inputs)
    forward = counter.get_total_flops()
    images = 2 * enas.IMAGES * 32**2 * 3 * 3**2 * 3 * enas_cells.FILTERS if "cifar10" in name else 0
    products = graph.canonical_kind.among(["matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight"])
    assert graph.flops[products & graph.phase.among(["forward"])].sum() == forward
    assert graph.flops[products].sum() == 3 * forward - images
