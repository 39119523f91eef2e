"""The columns of HSDAG's nodes: fractal dimensions of known graphs, and the rest by hand."""

import networkx as nx
import numpy as np
import pytest
from support.graphs import equal_gpus

from gnnplace.costs.roofline import problem as roofline
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.policies.encoders.kinds import Vocabulary
from gnnplace.policies.hsdag.columns import DEGREES, DIMS, POSITIONS, columns, fractal_dimension, width
from gnnplace.policies.hsdag.parsing import co_located
from gnnplace.units.units import unit_edges, units


def dimension(graph):
    graph = nx.convert_node_labels_to_integers(graph)
    edges = np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2).T
    return fractal_dimension(graph.number_of_nodes(), edges)


def test_a_path_has_dimension_one_at_its_ends_and_a_ring_everywhere():
    assert dimension(nx.path_graph(30))[[0, -1]].tolist() == pytest.approx([1, 1])
    assert dimension(nx.cycle_graph(31)) == pytest.approx(1)


def test_fewer_than_two_distances_have_no_slope():
    assert dimension(nx.star_graph(5))[0] == 0
    assert dimension(nx.star_graph(5))[1] == pytest.approx(np.log(5) / np.log(2))  # the centre, then all others
    assert dimension(nx.complete_graph(4)).tolist() == [0] * 4
    assert dimension(nx.empty_graph(3)).tolist() == [0] * 3


def test_a_grid_has_more_dimensions_than_a_path_and_its_slope_is_that_of_least_squares():
    grid = nx.grid_2d_graph(11, 11)
    middle = list(grid).index((5, 5))
    distances = np.array(list(nx.single_source_shortest_path_length(grid, (5, 5)).values()))
    radius = np.arange(1, distances.max() + 1)
    within = [(distances <= r).sum() - 1 for r in radius]
    assert dimension(grid)[middle] == pytest.approx(np.polyfit(np.log(radius), np.log(within), 1)[0])
    assert dimension(grid)[middle] > 1.4


def test_edges_count_both_ways_and_pieces_out_of_reach_do_not():
    path = np.array([[1, 2, 3], [0, 1, 2]])
    assert fractal_dimension(6, path)[0] == pytest.approx(1)
    assert fractal_dimension(6, path)[4:].tolist() == [0, 0]


def nodes_of(features):
    ops = [
        Op("x", "Input", (Output(4, (1, 3)),)),
        Op("w", "Const", (Output(4, (7,)),)),
        Op("a", "MatMul", (Output(4, (1, 9)),)),
        Op("b", "Relu", (Output(4, (1, 9, 2)),)),
        Op("y", "Sink"),
    ]
    graph = ComputationGraph.from_ops("five", ops, [(0, 0, 2), (1, 0, 2), (2, 0, 3), (3, 0, 4)])
    of = roofline(graph, equal_gpus(2))
    nodes = co_located(of, units(graph, "ops"), "paper")
    sent = unit_edges(graph, nodes)
    kinds = Vocabulary(("MatMul", "Relu"))
    found = columns(graph, nodes, np.stack([sent.src, sent.dst]).astype(np.int64), kinds, features)
    assert found.shape == (3, width(features, kinds))
    return found


def test_kinds_are_shares_of_a_set_and_the_code_adds_its_number():
    assert nodes_of("code").tolist() == [[0, 0, 1, 0], [0, 0, 1, 1], pytest.approx([1 / 3, 1 / 3, 1 / 3, 2])]


def test_the_papers_columns_by_hand():
    kinds, into, out, rest = np.split(nodes_of("paper"), [3, 3 + DEGREES, 3 + 2 * DEGREES], axis=1)
    assert kinds[2].tolist() == pytest.approx([1 / 3] * 3)
    assert into.argmax(axis=1).tolist() == [0, 0, 2] and out.argmax(axis=1).tolist() == [1, 1, 0]
    dimensions, shapes, positions = np.split(rest, [1, 1 + DIMS], axis=1)
    assert dimensions[:, 0].tolist() == pytest.approx([1, 1, 0])  # a path of three
    assert np.expm1(shapes[:2, :3]).tolist() == [pytest.approx([1, 3, 0]), pytest.approx([7, 0, 0])]
    assert shapes[2].tolist() == [0] * DIMS  # its last op has no output
    assert positions.shape[1] == POSITIONS and positions[0].tolist() == [0] * (POSITIONS // 2) + [1] * (POSITIONS // 2)
    assert positions[1, [0, POSITIONS // 2]].tolist() == pytest.approx([np.sin(1), np.cos(1)])


def test_more_producers_than_there_are_columns_share_the_last():
    edges = np.stack([np.arange(1, 30), np.zeros(29, np.int64)])
    from gnnplace.policies.hsdag.columns import degree_columns

    assert degree_columns(30, edges[1])[0].argmax() == DEGREES - 1
