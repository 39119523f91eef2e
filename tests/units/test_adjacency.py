"""The undirected graph of units, by hand."""

import numpy as np
import pytest

from gnnplace.units.adjacency import adjacency, whole
from gnnplace.units.units import UnitEdges


def test_edges_both_ways_are_one_and_their_weights_add_up():
    edges = UnitEdges(np.array([0, 1, 2, 0], np.int32), np.array([1, 0, 0, 2], np.int32), np.zeros(4, np.int64))
    found = adjacency(edges, 4, np.array([1.0, 2.0, 10.0, 20.0]))
    assert found.ptr.tolist() == [0, 2, 3, 4, 4]
    assert found.neighbour.tolist() == [1, 2, 0, 0]
    assert found.weight.tolist() == [3, 30, 3, 30]


def test_no_edges():
    nothing = np.zeros(0, np.int32)
    found = adjacency(UnitEdges(nothing, nothing, np.zeros(0, np.int64)), 2, np.zeros(0))
    assert found.ptr.tolist() == [0, 0, 0] and not len(found.neighbour)


@pytest.mark.parametrize(("weights", "expected"), [([0.0, 3.4, 10.0], [1, 3, 10]), ([0.0, 50.0, 200.0], [1, 25, 100]), ([], [])])
def test_whole_weights_are_in_proportion_where_they_are_too_large(weights, expected):
    assert whole(np.array(weights), 100.0).tolist() == expected
