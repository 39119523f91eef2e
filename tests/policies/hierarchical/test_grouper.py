"""The Grouper's two activations, its initial weights, and groupings drawn at random."""

import torch
from support.graphs import chains

from gnnplace.policies.clustering import clustering
from gnnplace.policies.hierarchical.fixed import ClusteredGrouping, RandomGrouping
from gnnplace.policies.hierarchical.grouper import Grouper
from gnnplace.units.units import units


def test_linear_is_one_linear_map_of_low_rank():
    grouper = Grouper(10, 30, hidden=4, activation="linear")
    ops = torch.randn(50, 10)
    torch.testing.assert_close(grouper(2 * ops) - grouper(ops), grouper(ops) - grouper(0 * ops))
    assert torch.linalg.matrix_rank(grouper(ops) - grouper(0 * ops)) == 4


def test_relu_by_hand():
    grouper = Grouper(1, 2, hidden=1)
    with torch.no_grad():
        for parameter, value in zip(grouper.parameters(), ([[2.0]], [1.0], [[3.0], [-1.0]], [0.0, 5.0]), strict=True):
            parameter.copy_(torch.tensor(value))
    assert grouper(torch.tensor([[1.0], [-1.0]])).tolist() == [[9, 2], [0, 5]]


def test_ops_are_scored_independently_of_each_other():
    grouper, ops = Grouper(5, 3), torch.randn(8, 5)
    torch.testing.assert_close(grouper(ops)[2:3], grouper(ops[2:3]))


def test_weights_start_glorot_uniform_and_biases_at_zero():
    torch.manual_seed(0)
    first, _, second = Grouper(57, 256).layers
    for layer, fans in ((first, 57 + 64), (second, 64 + 256)):
        bound = (6 / fans) ** 0.5
        assert layer.bias.abs().max() == 0
        assert 0.98 * bound < layer.weight.abs().max() <= bound


def test_a_random_grouping_stays_and_follows_its_seed():
    of = chains(1, 200, 2)
    many = units(of.graph, "ops")
    assert RandomGrouping(8, 1).reads(of, many).equal(RandomGrouping(8, 1).reads(of, many))
    assert not RandomGrouping(8, 1).reads(of, many).equal(RandomGrouping(8, 2).reads(of, many))
    assert set(RandomGrouping(4, 0).reads(of, many)[0].tolist()) == {0, 1, 2, 3}


def test_a_clustered_grouping_is_what_a_grouper_is_taught():
    of = chains(4, 6, 2)
    grouped = units(of.graph, "ops")
    parts = ClusteredGrouping(4).reads(of, grouped)[0]
    assert parts.tolist() == clustering(of, grouped, 4).tolist()
    assert all(len(set(chain.tolist())) == 1 for chain in parts[grouped.unit].view(4, 6))
