import numpy as np
from support.graphs import op

from gnnplace.graph import ComputationGraph
from gnnplace.schedules.paths import longest_paths


def test_heads_and_tails_of_a_diamond_by_hand():
    graph = ComputationGraph.from_ops("diamond", [op(name) for name in "abcd"], [(0, 0, 1), (0, 0, 2), (1, 0, 3), (2, 0, 3)])
    paths = longest_paths(graph, np.array([1, 10, 3, 5]))
    assert paths.head_ns.tolist() == [0, 1, 1, 11]
    assert paths.tail_ns.tolist() == [16, 15, 8, 5]
    assert paths.critical_path_ns == 16


def test_ops_that_are_not_in_topological_order():
    graph = ComputationGraph.from_ops("reversed", [op("last"), op("first")], [(1, 0, 0)])
    paths = longest_paths(graph, np.array([2, 7]))
    assert paths.head_ns.tolist() == [7, 0] and paths.tail_ns.tolist() == [2, 9]
