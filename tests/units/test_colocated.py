"""ColocRL's colocation rules on hand-made graphs, and against joining one pair at a time on random ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.random_problems import random_case

from gnnplace.corpus import manifest
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.units.units import by_layer, colocation_closure, units, with_sole_readers


def graph_of(edges, **columns):
    """Ops named by letters, with an output each; `columns` gives some of them more columns."""
    names = sorted({end for src, dst, *_ in edges for end in (src, dst)} | set(columns))
    ops = [replace(Op(name, "Op", (Output(8),)), **columns.get(name, {})) for name in names]
    return ComputationGraph.from_ops("g", ops, [(names.index(src), *(control or [0]), names.index(dst)) for src, dst, *control in edges])


def groups(graph, name="readers"):
    found = units(graph, name)
    return {"".join(np.array(graph.op_names)[found.unit == unit].tolist()) for unit in range(found.num_units)}


def test_an_output_that_two_ops_read_joins_neither():
    assert groups(graph_of([("a", "b"), ("a", "c")])) == {"a", "b", "c"}


def test_an_op_joins_the_only_reader_of_its_output():
    assert groups(graph_of([("a", "c"), ("b", "c"), ("c", "d"), ("c", "e")])) == {"abc", "d", "e"}


def test_groups_are_ops_to_the_next_round():
    """`a` has two readers until `b` has joined `c`; a round alone gives {a, bc}."""
    assert groups(graph_of([("a", "b"), ("a", "c"), ("b", "c")])) == {"abc"}


def test_a_colocation_group_is_one_reader():
    assert groups(graph_of([("a", "b"), ("a", "c"), ("b", "d"), ("b", "e")], b={"colocation": "w"}, c={"colocation": "w"})) == {
        "abc",
        "d",
        "e",
    }


def test_a_control_edge_reads_nothing():
    assert groups(graph_of([("a", "b"), ("a", "c", CONTROL)])) == {"ab", "c"}
    assert groups(graph_of([("a", "b", CONTROL)])) == {"a", "b"}


def test_a_reader_on_other_devices_is_not_joined():
    assert groups(graph_of([("a", "b"), ("b", "c")], b={"allowed": ("cpu",)})) == {"a", "b", "c"}


def test_a_chain_is_one_group():
    assert len(groups(graph_of([(f"{i:02}", f"{i + 1:02}") for i in range(40)]))) == 1


def one_by_one(graph, generator):
    """The rule as the paper says it: as long as a group has one reader, such a group, any of them, joins it."""
    label = colocation_closure(graph)
    while True:
        readers = {}
        for src, output, dst in zip(graph.edge_src, graph.edge_output, graph.edge_dst, strict=True):
            if output != CONTROL and label[src] != label[dst]:
                readers.setdefault(int(label[src]), set()).add(int(label[dst]))
        ready = [(group, *found) for group, found in readers.items() if len(found) == 1]
        if not ready:
            return label
        group, reader = ready[generator.integers(len(ready))]
        label = np.where(label == group, reader, label)


def partition(label):
    return {tuple(np.flatnonzero(label == value).tolist()) for value in np.unique(label)}


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_joins_does_not_matter(seed):
    graph = random_case(seed).problem().graph
    free = replace(graph, allowed=replace(graph.allowed, index=np.full(graph.num_ops, -1, np.int32)), given_time_ns=graph.given_time_ns * 0)
    found = with_sole_readers(free, colocation_closure(free))
    assert partition(found) == partition(one_by_one(free, np.random.default_rng(seed)))


def cells(graph):
    label = by_layer(graph, colocation_closure(graph))
    return {"".join(np.array(graph.op_names)[list(members)].tolist()) for members in partition(label)}


def test_a_step_of_a_recurrent_layer_is_a_group_with_its_gradients():
    rows = {
        "a": (0, 0, "forward"),
        "b": (0, 1, "forward"),
        "c": (1, 0, "forward"),
        "d": (0, 0, "backward_data"),
        "e": (0, 1, "backward_data"),
    }
    columns = {name: {"layer": f"net/lstm_{layer}", "time_step": step, "phase": phase} for name, (layer, step, phase) in rows.items()}
    state = {name: {"layer": "net/lstm_0", "persistent_bytes": 8} for name in "vw"}
    assert cells(graph_of([], **columns, **state)) == {"ad", "be", "c", "vw"}


def test_a_branch_is_the_scope_around_layers_that_do_not_recur():
    layers = {
        "a": "stem",
        "b": "mixed/branch_0/0",
        "c": "mixed/branch_0/1",
        "d": "mixed/branch_1/0",
        "e": "mixed/concat",
        "f": "mixed.branch_1.1",
    }
    assert cells(graph_of([], **{name: {"layer": layer} for name, layer in layers.items()})) == {"a", "bc", "df", "e"}


def test_a_group_is_of_the_layer_of_its_leader_and_stays_alone_without_one():
    variable = {"layer": "dense/weights", "persistent_bytes": 100}
    columns = {
        "a": {**variable, "colocation": "w"},
        "b": {"layer": "adam/update", "colocation": "w"},
        "c": {"layer": "dense/matmul"},
        "d": {},
    }
    assert cells(graph_of([], **columns)) == {"abc", "d"}


def test_ops_of_a_layer_on_other_devices_are_another_group():
    assert cells(graph_of([], a={"layer": "x/0"}, b={"layer": "x/1", "allowed": ("cpu",)}, c={"layer": "x/2"})) == {"ac", "b"}


def test_a_group_whose_only_reader_is_of_another_layer_goes_with_its_leader():
    """The readers' rule comes first, so two layers never become one by an op between them."""
    columns = {"a": {"layer": "x/0", "persistent_bytes": 9}, "b": {"layer": "y/0"}, "c": {"layer": "y/1"}, "d": {"layer": "x/1"}}
    graph = graph_of([("a", "b"), ("b", "c"), ("b", "d")], **columns)
    assert groups(graph, "readers") == {"ab", "c", "d"}
    assert groups(graph, "colocated") == {"abd", "c"}


@pytest.mark.parametrize(("name", "papers"), [("rnnlm-2", 188), ("nmt-2", 280), ("inception-v3-b32", 83)])
def test_the_papers_networks_have_about_as_many_groups_as_in_the_paper(name, papers):
    assert 2 / 3 < units(manifest.graph(name), "colocated").num_units / papers < 1
