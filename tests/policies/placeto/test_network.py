"""Placeto's network: its size, messages and masks by hand, pools over relatives, and what a batch must not mix."""

import numpy as np
import pytest
import torch

from gnnplace.policies.placeto import network as module
from gnnplace.policies.placeto.network import Messages, PlacetoNetwork, SideBySide, both_ways, perceptron, total
from gnnplace.policies.placeto.relatives import around, leading_to, relatives


def graph(nodes, *edges, sums="sum", used=None):
    """One graph as a batch of one."""
    feeds = torch.zeros(1, nodes, nodes, dtype=torch.bool)
    for src, dst in edges:
        feeds[0, src, dst] = True
    before = leading_to(np.array(edges, np.int64).reshape(-1, 2).T, np.arange(nodes), nodes)
    used = torch.ones(1, nodes, dtype=torch.bool) if used is None else torch.tensor([used])
    return relatives(feeds, torch.from_numpy(before)[None], used, sums)


def network(columns=5, devices=2, **knobs):
    torch.manual_seed(0)
    return PlacetoNetwork(columns, devices, **{"rounds": 3} | knobs)


DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]


def test_it_has_as_many_parameters_as_the_authors_code():
    assert sum(weight.numel() for weight in network(7, 2, rounds=8).parameters()) == 15_962


def test_relatives_by_hand():
    up, down, parallel = around(graph(6, *DIAMOND), torch.tensor([1]))[0]
    assert up.nonzero().flatten().tolist() == [0]
    assert down.nonzero().flatten().tolist() == [3, 4]
    assert parallel.nonzero().flatten().tolist() == [2, 5]  # another branch, and a node without edges


def test_ancestors_are_led_to_by_ops_not_by_groups():
    """A variable (0) stands with its update (4): the forward pass (1, 2) and the backward pass (3) lie between them."""
    edges, group = np.array([(0, 1), (1, 2), (2, 3), (3, 4)]).T, np.array([0, 1, 2, 2, 0])
    before = leading_to(edges, group, 3)
    assert before.tolist() == [[True, True, True], [True, False, False], [True, True, True]]
    cycle = relatives(
        torch.tensor([[[0, 1, 0], [0, 0, 1], [1, 0, 1]]]).bool(), torch.from_numpy(before)[None], torch.ones(1, 3).bool(), "sum"
    )
    assert around(cycle, torch.tensor([0]))[0].tolist() == [[False, True, True], [False, True, True], [False] * 3]
    assert around(cycle, torch.tensor([1]))[0].tolist() == [[True, False, False], [True, False, True], [False] * 3]
    assert cycle.from_children.diagonal(dim1=1, dim2=2).sum() == 0


def test_an_empty_group_is_nobodys_relative():
    assert not around(graph(3, (0, 1), used=[True, True, False]), torch.tensor([0]))[0, :, 2].any()


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 100])
def test_all_earlier_nodes_lead_to_a_node_of_a_chain(length):
    edges = np.stack([np.arange(length - 1), np.arange(1, length)])
    assert np.array_equal(leading_to(edges, np.arange(length), length), np.tri(length, k=-1).astype(bool))


def test_sums_and_means_over_parents():
    rows = torch.tensor([[[[1.0]], [[2.0]], [[4.0]]]])
    assert total(graph(3, (0, 2), (1, 2)).from_parents, rows).flatten().tolist() == [0, 0, 3]
    assert total(graph(3, (0, 2), (1, 2), sums="mean").from_parents, rows).flatten().tolist() == [0, 0, 1.5]
    assert total(graph(3, (0, 2), (1, 2)).from_children, rows).flatten().tolist() == [4, 4, 0]


@pytest.mark.parametrize("residual", [True, False])
def test_a_node_that_hears_from_nobody_keeps_its_own_whatever_the_biases(residual):
    torch.manual_seed(0)
    messages = Messages(3, 1, residual)
    torch.nn.init.constant_(messages.heard[-1].bias, 100.0)
    start = torch.rand(1, 5, 2, 3)
    out = messages(start, graph(5, *DIAMOND).from_parents)
    torch.testing.assert_close(out[:, 0], start[:, 0])
    assert (out[:, 1:] > 90).all()


def test_networks_side_by_side_are_the_networks_one_by_one():
    torch.manual_seed(2)
    nets, rows = [perceptron(3, 4, 2) for _ in range(2)], torch.randn(2, 5, 2, 3)
    for net in nets:
        torch.nn.init.normal_(net[-1].bias)
    torch.testing.assert_close(SideBySide(nets)(rows), torch.stack([net(row) for net, row in zip(nets, rows, strict=True)]))


@pytest.mark.parametrize("residual", [True, False])
def test_both_ways_at_once_are_each_way_alone(residual):
    torch.manual_seed(2)
    down, up, start = Messages(3, 4, residual), Messages(3, 4, residual), torch.rand(2, 5, 2, 3)
    of = [torch.cat(pair) for pair in zip(graph(5, *DIAMOND), graph(5, (4, 0), (0, 2)), strict=True)]
    both = both_ways((down, up), start, torch.stack(of[:2]))
    torch.testing.assert_close(both, torch.stack([down(start, of[0]), up(start, of[1])]))
    assert not torch.allclose(both[0], both[1])


def test_many_rows_are_embedded_as_few_are(monkeypatch):
    net, node, current = network(), torch.rand(1, 5, 3, 5), torch.tensor([1])
    few = net(node, graph(5, *DIAMOND), current)
    monkeypatch.setattr(module, "FEW_ROWS", 14)
    monkeypatch.setattr(module, "both_ways", lambda ways, *read: (len(ways) == 1) and both_ways(ways, *read))
    torch.testing.assert_close(net(node, graph(5, *DIAMOND), current), few)


def test_messages_go_as_far_as_there_are_rounds():
    chain = graph(5, (0, 1), (1, 2), (2, 3), (3, 4)).from_parents
    torch.manual_seed(1)
    messages, start = Messages(4, 2, True), torch.rand(1, 5, 1, 4, requires_grad=True)
    messages(start, chain)[0, 4].sum().backward()
    assert (start.grad[0].abs().sum((1, 2)) > 0).tolist() == [False, False, True, True, True]


def test_one_round_by_hand():
    messages = Messages(1, 1, True)
    for layer in (*messages.sent, *messages.heard):
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.constant_(layer.weight, 2.0)
            torch.nn.init.zeros_(layer.bias)
    start = torch.tensor([[[[1.0]], [[3.0]], [[5.0]]]])
    assert messages(start, graph(3, (0, 2), (1, 2)).from_parents).flatten().tolist() == [1, 3, 5 + 4 * (4 * 1 + 4 * 3)]


@pytest.mark.parametrize("residual", [True, False])
def test_numbers_of_nodes_mean_nothing(residual):
    net, node = network(residual=residual), torch.rand(1, 6, 2, 5)
    order = torch.tensor([3, 0, 5, 2, 4, 1])  # node order[i] is number i now
    position = order.argsort().tolist()
    moved = graph(6, *[(position[src], position[dst]) for src, dst in DIAMOND])
    here = net(node, graph(6, *DIAMOND), torch.tensor([3]))
    torch.testing.assert_close(net(node[:, order], moved, torch.tensor([position[3]])), here)
    assert not torch.allclose(net(node, graph(6, *DIAMOND), torch.tensor([2])), here)


def test_samples_and_graphs_of_a_batch_do_not_mix():
    net, node, current = network(), torch.rand(2, 6, 3, 5), torch.tensor([1, 4])
    first, second = graph(6, *DIAMOND), graph(6, (5, 0), (4, 2))
    both = net(node, type(first)(*(torch.cat(pair) for pair in zip(first, second, strict=True))), current)
    for number, alone in enumerate((first, second)):
        for sample in range(3):
            one = net(node[number : number + 1, :, sample : sample + 1], alone, current[number : number + 1])
            torch.testing.assert_close(one[0, 0], both[number, sample])


@pytest.mark.parametrize(("current", "pool"), [(1, 0), (1, 1), (1, 2)])
def test_each_pool_reads_its_own_set(current, pool):
    """Without messages' reach (no edge weight) only a pool tells the head of a node."""
    net, of = network(), graph(6, *DIAMOND)
    cut = of._replace(from_parents=torch.zeros_like(of.from_parents), from_children=torch.zeros_like(of.from_children))
    node = torch.rand(1, 6, 1, 5, requires_grad=True)
    for number, other in enumerate(net.pools):
        if number != pool:
            for weight in other.parameters():
                torch.nn.init.zeros_(weight)
    net(node, cut, torch.tensor([current])).sum().backward()
    seen = set((node.grad[0].abs().sum((1, 2)) > 0).nonzero().flatten().tolist())
    assert seen == {current, *around(of, torch.tensor([current]))[0, pool].nonzero().flatten().tolist()}
