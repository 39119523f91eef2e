"""Co-location sets by both rules: by hand, and acyclic on random graphs."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import equal_gpus, op

from gnnplace.costs.roofline import problem as roofline
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.policies.hsdag.parsing import co_located, joins, pieces
from gnnplace.units.units import units


def sets(nodes, pairs, rule):
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return pieces(nodes, edges[:, joins(nodes, edges, rule)]).tolist()


def test_a_fan_is_one_set_by_the_code_and_three_by_the_paper():
    assert sets(3, [(0, 1), (0, 2)], "code") == [0, 0, 0]
    assert sets(3, [(0, 1), (0, 2)], "paper") == [0, 1, 2]


@pytest.mark.parametrize("rule", ["paper", "code"])
def test_a_chain_is_one_set_and_an_op_of_two_producers_begins_another(rule):
    assert sets(4, [(0, 1), (1, 2), (2, 3)], rule) == [0, 0, 0, 0]
    assert sets(5, [(0, 2), (1, 2), (2, 3), (3, 4)], rule) == [0, 1, 2, 2, 2]


@pytest.mark.parametrize("rule", ["paper", "code"])
@given(st.integers(2, 12), st.data())
def test_sets_have_no_cycle_among_them(rule, nodes, data):
    pairs = [(a, b) for b in range(nodes) for a in range(b) if data.draw(st.booleans())]
    label = sets(nodes, pairs, rule)
    between = {(label[a], label[b]) for a, b in pairs if label[a] != label[b]}
    assert nx.is_directed_acyclic_graph(nx.DiGraph(between))
    assert all(a < b for a, b in between)  # so that numbers are a topological order


def test_ops_that_may_stand_elsewhere_stay_apart():
    ops = [op("a"), op("b"), Op("c", "Op", (Output(0),), time_ns={"gpu:1": 10}), Op("d", "Op", (Output(0),), time_ns={"gpu:1": 10})]
    of = roofline(ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(3)]), equal_gpus(2))
    assert co_located(of, units(of.graph, "ops"), "paper").unit.tolist() == [0, 0, 1, 1]


def test_colocated_ops_are_one_node_whatever_the_rule():
    ops = [op("a", colocation="w"), op("b"), op("c", colocation="w"), op("d")]
    of = roofline(ComputationGraph.from_ops("loop", ops, [(0, 0, 1), (1, 0, 2), (0, 0, 3), (1, 0, 3)]), equal_gpus(2))
    assert co_located(of, units(of.graph, "ops"), "code").unit.tolist() == [0, 0, 0, 1]
    assert co_located(of, units(of.graph, "ops"), "paper").unit.tolist() == [0, 1, 0, 2]
