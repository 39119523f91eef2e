"""What partitioners balance: work, and bytes where parts of equal work do not fit."""

from ctypes.util import find_library

import numpy as np
import pytest
from support.graphs import equal_gpus, op

from gnnplace.baselines.balanced import mixed
from gnnplace.baselines.metis import metis
from gnnplace.baselines.scotch import min_cut, scotch
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.simulator.simulator import simulate

NEEDS_SCOTCH = pytest.mark.skipif(find_library("scotch-7.0") is None, reason="needs Debian's libscotch-7.0")


@pytest.mark.parametrize("planner", [metis, pytest.param(scotch, marks=NEEDS_SCOTCH), pytest.param(min_cut, marks=NEEDS_SCOTCH)])
def test_bytes_are_balanced_where_parts_of_equal_work_do_not_fit(planner):
    """One op is half of the work; the others hold 200 bytes together, more than one device has."""
    ops = [op("heavy", 100, persistent_bytes=10), *(op(f"light{i}", 10, persistent_bytes=20) for i in range(10))]
    graph = ComputationGraph.from_ops("uneven", ops, [])
    for memory_bytes, most in ((1000, 100), (140, 160)):
        posed = problem(graph, equal_gpus(2, memory_bytes=memory_bytes))
        (result,) = simulate(posed, [planner(posed, simulate, units_name="ops")])
        assert result.infeasible is None and result.step_time_ns <= most


def test_a_share_of_a_weight_is_another():
    found = mixed(np.array([3.0, 1.0]), np.array([0, 8]), 0.25)
    assert found.tolist() == [2.25, 0.75 + 1.0]
    assert mixed(np.array([3.0, 1.0]), np.array([0, 0]), 0.0).tolist() == [3.0, 1.0]
