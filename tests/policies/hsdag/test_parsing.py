"""Graph parsing: kept edges, groups, levels, and the factor by which scores learn."""

from itertools import pairwise

import hypothesis
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnplace.policies.hsdag.parsing import Convolutions, Dropout, GraphParsing, best_edges, between, inner_scores, normalised

NO_DROP = Dropout(0.0, 0)


def edges_of(graph):
    return torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).T


def parsed(nodes, edges, levels=1, drop=NO_DROP, seed=0, keep=lambda level, best: best):
    torch.manual_seed(seed)
    network = GraphParsing(5, 2, width=8, levels=levels)
    return network, network(torch.randn(nodes, 5), edges, keep, drop)


def test_each_node_keeps_its_best_edge():
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    assert best_edges(torch.tensor([0.9, 0.1, 0.2, 0.8]), path, 5).tolist() == [True, False, True, True]
    assert best_edges(torch.tensor([0.9, 0.1, 0.2, 0.1]), path, 5).tolist() == [True, False, True, True]
    assert best_edges(torch.tensor([0.9, 0.2, 0.1, 0.8]), path, 5).tolist() == [True, True, False, True]
    star = torch.tensor([[0, 0, 0], [1, 2, 3]])
    assert best_edges(torch.full((3,), 0.5), star, 4).tolist() == [True] * 3  # the only one of each leaf


def test_of_equal_edges_the_first_is_kept():
    ring = torch.tensor([[0, 1, 2, 0], [1, 2, 3, 3]])
    assert best_edges(torch.full((4,), 0.5), ring, 4).tolist() == [True, True, True, False]


@given(st.integers(2, 40), st.integers(0, 10**6), st.booleans())
@hypothesis.settings(max_examples=30, deadline=None)
def test_one_level_has_at_most_half_as_many_groups_and_enough_levels_leave_one(nodes, seed, dense):
    graph = nx.gnp_random_graph(nodes, 0.3 if dense else 0.05, seed=seed)
    nx.add_path(graph, range(nodes))
    edges = edges_of(graph)
    assert int(parsed(nodes, edges, 1)[1].group.max()) + 1 <= nodes // 2
    assert parsed(nodes, edges, 10)[1].group.tolist() == [0] * nodes


def test_groups_are_connected_and_nodes_without_edges_are_alone():
    graph = nx.disjoint_union_all([nx.path_graph(7), nx.cycle_graph(5), nx.empty_graph(2)])
    group = parsed(14, edges_of(graph))[1].group
    members = [set(np.flatnonzero(group == each).tolist()) for each in range(int(group.max()) + 1)]
    assert all(nx.is_connected(graph.subgraph(each)) for each in members) and {12} in members and {13} in members
    assert group[0] == 0 and all(min(a) < min(b) for a, b in pairwise(members))


def test_what_is_kept_decides_the_groups():
    path = torch.tensor([[0, 1, 2], [1, 2, 3]])
    kept = torch.tensor([False, True, False])
    assert parsed(4, path, keep=lambda level, best: kept)[1].group.tolist() == [0, 1, 1, 2]


def test_a_graph_without_edges_is_placed_node_by_node():
    _, found = parsed(3, torch.zeros(2, 0, dtype=torch.int64))
    assert found.group.tolist() == [0, 1, 2] and found.logits.shape == (3, 2) and found.logits.isfinite().all()


def test_inner_scores_are_counted_in_both_directions():
    edges, label = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([0, 0, 0, 1])
    assert inner_scores(torch.tensor([0.5, 0.25, 0.9]), edges, label, 2).tolist() == [1.5, 1]


def test_edges_between_groups_are_distinct_and_join_different_ones():
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    assert between(torch.tensor([0, 0, 1, 1]), edges).tolist() == [[0], [1]]


@given(st.integers(1, 20), st.integers(0, 30), st.integers(0, 2**16))
def test_edges_between_groups_are_those_of_their_pairs(groups, count, seed):
    drawn = np.random.default_rng(seed)
    label = np.concatenate([np.arange(groups), drawn.integers(0, groups, 10)])
    edges = drawn.integers(0, len(label), (2, count))
    pairs = {tuple(sorted(pair)) for pair in label[edges].T.tolist() if pair[0] != pair[1]}
    assert between(torch.from_numpy(label), torch.from_numpy(edges)).T.tolist() == sorted(map(list, pairs))


def test_the_normalised_graph_by_hand():
    expected = torch.tensor([[1 / 2, 1 / 6**0.5, 0, 0], [1 / 6**0.5, 1 / 3, 1 / 6**0.5, 0], [0, 1 / 6**0.5, 1 / 2, 0], [0, 0, 0, 1]])
    torch.testing.assert_close(normalised(torch.tensor([[0, 1], [1, 2]]), 4).to_dense(), expected)


def test_convolutions_and_their_gradients_are_those_of_pyg():
    torch.manual_seed(0)
    convolutions, edges = Convolutions(8, 2), edges_of(nx.gnm_random_graph(12, 20, seed=0))
    for convolution in convolutions.rounds:
        torch.nn.init.normal_(convolution.bias)
    nodes = torch.randn(12, 8, requires_grad=True)
    found = convolutions(nodes, normalised(edges, 12), NO_DROP)
    hidden = nodes
    for convolution in convolutions.rounds:
        hidden = torch.relu(convolution(hidden, torch.cat([edges, edges.flip(0)], dim=1)))
    expected = convolutions.norm(nodes + hidden)
    torch.testing.assert_close(found, expected)
    weights, knobs = torch.randn(12, 8), [nodes, *convolutions.parameters()]
    gradients = [torch.autograd.grad((weights * made).sum(), knobs) for made in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_the_scores_learn_through_the_factor_alone():
    network, found = parsed(6, edges_of(nx.path_graph(6)))
    found.logits[:, 0].sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.edge.parameters())
    network, found = parsed(6, edges_of(nx.path_graph(6)), keep=lambda level, best: torch.zeros_like(best))
    found.logits[:, 0].sum().backward()  # each node is alone: no edge is inside a group
    assert all(parameter.grad.abs().sum() == 0 for parameter in network.edge.parameters())


def test_the_direction_of_edges_does_not_matter():
    edges = edges_of(nx.gnp_random_graph(12, 0.3, seed=1))
    torch.testing.assert_close(parsed(12, edges)[1].logits, parsed(12, edges.flip(0))[1].logits)


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_dropout_is_known_by_its_number(share):
    ones = torch.ones(200, 50)
    first, second = Dropout(share, 3), Dropout(share, 3)
    made = first(ones)
    assert torch.equal(made, second(ones)) and torch.equal(first(ones), second(ones))
    assert not torch.equal(made, Dropout(share, 4)(ones)) and torch.equal(Dropout(share, 0)(ones), ones)
    assert float((made == 0).float().mean()) == pytest.approx(share, abs=0.02) and float(made.mean()) == pytest.approx(1, abs=0.03)
