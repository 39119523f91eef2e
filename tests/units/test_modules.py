"""Modules by hand on a step of two layers with code between them, and their promises on the corpus and on random graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.random_problems import random_case

from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.sources import graphs
from gnnplace.units.modules import modules
from gnnplace.units.units import colocation_closure

SIZE = 1000


def two_layers(layers: bool = True) -> ComputationGraph:
    """A step: input, layer a, a sum of nobody's, layer b, a loss, and their gradients and updates. `b.act` has no variable."""
    ops = {
        "x": (Op("x", "input", kernel=False, phase="other"), "inputs", []),
        "wa": (Op("wa", "variable", persistent_bytes=SIZE, kernel=False, phase="other"), "a", []),
        "ma": (Op("ma", "mm", phase="forward", canonical_kind="matmul"), "a", ["x", "wa"]),
        "sum": (Op("sum", "add", phase="forward"), "block", ["x", "ma"]),
        "wb": (Op("wb", "variable", persistent_bytes=SIZE, kernel=False, phase="other"), "b", []),
        "mb": (Op("mb", "mm", phase="forward", canonical_kind="matmul"), "b", ["sum", "wb"]),
        "act": (Op("act", "relu", phase="forward"), "b.act", ["mb"]),
        "loss": (Op("loss", "loss", phase="forward"), "loss", ["act"]),
        "dloss": (Op("dloss", "loss", phase="backward_data"), "loss", ["loss"]),
        "dact": (Op("dact", "relu", phase="backward_data"), "b.act", ["dloss", "act"]),
        "dwb": (Op("dwb", "mm", phase="backward_weight"), "b", ["dact", "sum"]),
        "db": (Op("db", "mm", phase="backward_data"), "b", ["dact", "wb"]),
        "dsum": (Op("dsum", "add", phase="backward_data"), "block", ["db"]),
        "dwa": (Op("dwa", "mm", phase="backward_weight"), "a", ["dsum", "x"]),
        "ub": (Op("ub", "update", phase="update"), "optimizer", ["dwb", "wb"]),
        "ua": (Op("ua", "update", phase="update"), "optimizer", ["dwa", "wa"]),
    }
    number = {name: index for index, name in enumerate(ops)}
    made = [replace(op, outputs=(Output(SIZE),), layer=layer if layers else None) for op, layer, _ in ops.values()]
    return ComputationGraph.from_ops("two layers", made, [(number[s], 0, number[d]) for d, (_, _, read) in ops.items() for s in read])


def test_code_without_variables_runs_where_its_inputs_are_and_its_gradient_likewise():
    graph = two_layers()
    found = modules(graph)
    assert found.names == ("a", "b")
    of = {name: found.names[module] for name, module in zip(graph.op_names, found.module.tolist(), strict=True)}
    assert {name for name, module in of.items() if module == "a"} == {"x", "wa", "ma", "sum", "dsum", "dwa", "ua"}


def test_without_layers_every_colocation_group_is_a_module_named_by_its_first_op():
    graph = two_layers(layers=False)
    found = modules(graph)
    assert sorted(found.names) == sorted(graph.op_names) and [found.names[i] for i in found.module] == list(graph.op_names)


def test_a_head_that_multiplies_with_another_layers_variable_is_a_module():
    assert modules(graphs.graph("gpt2")).names[-1] == "lm_head"


@pytest.mark.parametrize("name", ["gpt2", "llama-1b", "bert-base-openvino", "nmt-2", "inception-v3-b1"])
def test_modules_of_the_corpus_are_its_layers_with_variables(name):
    graph = graphs.graph(name)
    found = modules(graph)
    holding = {graph.layer[op] for op in np.flatnonzero(graph.persistent_bytes > 8).tolist()}
    assert holding - set(found.names) <= {None} and len(set(found.names)) == found.num_modules
    own = [graph.layer[op] in (found.names[found.module[op]], None) for op in np.flatnonzero(graph.layer.among(found.names)).tolist()]
    assert np.mean(own) > 0.99  # but the updates of tied variables


@pytest.mark.parametrize("seed", range(40))
def test_every_op_has_a_module_and_a_colocation_group_has_one_only(seed):
    graph = random_case(seed).problem().graph
    found = modules(graph)
    assert found.module.min() >= 0 and sorted(set(found.module.tolist())) == list(range(found.num_modules))
    assert np.array_equal(found.module, found.module[colocation_closure(graph)])
