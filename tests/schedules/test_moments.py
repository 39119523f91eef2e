"""Moments of ops: none is before what it depends on, and the order that they make."""

import numpy as np

from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.schedules.moments import by_moment, raised, reached

# a -> b -> c, and d by itself
GRAPH = ComputationGraph.from_ops("g", [Op(name, "k", (Output(4),)) for name in "abcd"], [(0, 0, 1), (1, 0, 2)])


def test_values_are_raised_along_all_edges_and_no_further_than_they_must():
    assert raised(GRAPH, np.array([5, 1, 9, 2])).tolist() == [5, 5, 9, 2]
    assert raised(GRAPH, np.array([5, 1, 2, 2]), 1).tolist() == [5, 6, 7, 2]
    assert raised(GRAPH, np.array([1, 2, 8, 3]), backwards=True).tolist() == [8, 8, 8, 3]
    assert raised(GRAPH, np.array([5, 1, 2, 2]), which=np.array([True, False, True, True])).tolist() == [5, 1, 2, 2]
    assert reached(GRAPH, np.array([False, True, False, False])).tolist() == [False, True, True, False]


def test_the_earlier_one_goes_first_and_a_tie_has_the_order_of_the_graph():
    assert np.argsort(-by_moment(np.array([3, 1, 3, 0]))).tolist() == [3, 1, 0, 2]
