"""Units by hand on a variable that is used at two time steps, and their promises on random graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from support.graphs import equal_gpus, op
from support.random_problems import random_case
from support.slow import slow

import gnnplace as gp
from gnnplace.cluster import Cluster, Device
from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, NONE, ComputationGraph, Op, Output
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.units import (  # fmt: skip
    Units,
    UnitsName,
    allowed,
    expand,
    kept_bytes,
    output_bytes,
    persistent_bytes,
    unit_edges,
    units,
    work_ns,
)

NAMES = get_args(UnitsName)
WEIGHT, ACTIVATION = 1000, 100


def recurrent_step(phases: bool = True) -> ComputationGraph:
    """One weight used at two time steps: forward, gradients of data and weight at each, their sum, its norm and the update."""

    def named(name: str, size: int, phase: str, **columns) -> Op:
        alias = columns.pop("alias_of", None)
        return Op(name, "Op", (Output(size, alias_of=alias),), phase=phase if phases else None, **columns)

    ops = [
        named("variable", WEIGHT, "forward", persistent_bytes=WEIGHT),
        named("read", WEIGHT, "forward", alias_of=(0, 0)),
        named("x", ACTIVATION, "forward"),
        named("forward_0", ACTIVATION, "forward"),
        named("forward_1", ACTIVATION, "forward"),
        named("data_1", ACTIVATION, "backward_data"),
        named("data_0", ACTIVATION, "backward_data"),
        named("weight_1", WEIGHT, "backward_weight"),
        named("weight_0", WEIGHT, "backward_weight"),
        named("sum", WEIGHT, "backward_weight"),
        named("slot", WEIGHT, "update", persistent_bytes=WEIGHT),
        named("rate", 4, "update"),
        replace(named("update", 0, "update"), outputs=()),
    ]
    edges = [(0, 0, 1), (2, 0, 3), (1, 0, 3), (3, 0, 4), (1, 0, 4), (4, 0, 5), (1, 0, 5), (5, 0, 6), (1, 0, 6), (3, 0, 7), (4, 0, 7),
             (2, 0, 8), (5, 0, 8), (7, 0, 9), (8, 0, 9), (9, 0, 12), (10, 0, 12), (11, 0, 12), (0, 0, 12)]  # fmt: skip
    return ComputationGraph.from_ops("recurrent", ops, edges)


def members(graph: ComputationGraph, found: Units) -> set[frozenset[str]]:
    return {frozenset(np.array(graph.op_names)[found.unit == unit].tolist()) for unit in range(found.num_units)}


def together(graph: ComputationGraph, name: UnitsName) -> set[frozenset[str]]:
    return {unit for unit in members(graph, units(graph, name)) if len(unit) > 1}


STATE = frozenset({"variable", "read", "weight_0", "weight_1", "sum", "slot", "update"})


def test_weights_keep_a_variable_its_gradients_their_sum_and_its_update_together_and_its_users_by_phase():
    graph = recurrent_step()
    assert together(graph, "weights") == {STATE, frozenset({"forward_0", "forward_1"}), frozenset({"data_0", "data_1"})}


def test_without_phases_the_size_of_a_gradient_tells_it():
    graph = recurrent_step(phases=False)
    assert STATE in together(graph, "weights") and STATE in together(graph, "coarse")


def test_a_gradient_that_two_variables_need_joins_neither():
    state = [Op(name, "Variable", (Output(WEIGHT),), persistent_bytes=WEIGHT, phase="forward") for name in ("v", "w")]
    gradient = Op("gradient", "Op", (Output(WEIGHT),), phase="backward_weight")
    updates = [Op(f"update_{name}", "Update", (), phase="update") for name in ("v", "w")]
    graph = ComputationGraph.from_ops("shared", [*state, gradient, *updates], [(0, 0, 3), (1, 0, 4), (2, 0, 3), (2, 0, 4)])
    assert together(graph, "weights") == {frozenset({"v", "update_v"}), frozenset({"w", "update_w"})}


def test_a_scalar_binds_nothing_but_the_norm_of_a_gradient_stands_with_it():
    norm = Op("norm", "L2Loss", (Output(4),), phase="backward_weight")
    clip = Op("clip", "Min", (Output(4),), phase="update")
    ops = [
        Op(name, "Op", (Output(WEIGHT),), persistent_bytes=WEIGHT if "v" in name else 0, phase="update")
        for name in ("v0", "g0", "v1", "g1")
    ]
    ops += [norm, replace(norm, name="norm_1"), clip] + [Op(f"u{i}", "Update", (), phase="update") for i in range(2)]
    edges = [(1, 0, 4), (3, 0, 5), (4, 0, 6), (5, 0, 6), (0, 0, 7), (1, 0, 7), (6, 0, 7), (2, 0, 8), (3, 0, 8), (6, 0, 8)]
    graph = ComputationGraph.from_ops("clipped", ops, edges)
    assert together(graph, "weights") == {frozenset({"v0", "g0", "norm", "u0"}), frozenset({"v1", "g1", "norm_1", "u1"})}


def test_coarse_cells_are_layer_by_time_step_by_phase():
    ops = [
        Op(f"{layer}/{step}/{phase}/{i}", "Op", (Output(1),), layer=layer, time_step=step, phase=phase)
        for layer in ("encoder/lstm_0", "encoder/lstm_1") for step in (0, 1) for phase in ("forward", "backward_data") for i in (0, 1)
    ]  # fmt: skip
    graph = ComputationGraph.from_ops("cells", ops, [])
    assert members(graph, units(graph, "coarse")) == {
        frozenset({f"{name}/0", f"{name}/1"}) for name in {op.name.rsplit("/", 1)[0] for op in ops}
    }


def test_coarse_cells_take_the_finest_depth_of_scopes_with_at_most_1000():
    ops = [Op(f"{block}.{part}", "Op", (Output(1),), layer=f"net.{block}.{part}") for block in range(300) for part in range(5)]
    graph = ComputationGraph.from_ops("deep", ops, [])
    found = units(graph, "coarse")
    assert found.num_units == 300 and len({frozenset(name.split(".")[0] for name in unit) for unit in members(graph, found)}) == 300


@pytest.mark.parametrize("linked", [True, False])
def test_coarse_is_at_most_1000_and_balanced_without_any_metadata(linked: bool):
    generator = np.random.default_rng(0)
    ops = [Op(f"o{i}", "Op", (Output(int(size)),)) for i, size in enumerate(generator.integers(1, 1000, 4000))]
    edges = [(int(generator.integers(max(0, i - 30), i)), 0, i) for i in range(1, 4000) for _ in range(2)] if linked else []
    found = units(ComputationGraph.from_ops("bare", ops, edges), "coarse")
    assert found.num_units == 1000
    assert np.bincount(found.unit).max() <= 4000 // 20


def test_ops_of_different_rules_are_never_merged():
    ops = [Op(f"o{i}", "Op", (Output(8),), allowed=("cpu",) if i % 2 else None, layer="same", time_step=0) for i in range(3000)]
    graph = ComputationGraph.from_ops("rules", ops, [(i, 0, i + 1) for i in range(2999)])
    found = units(graph, "coarse")
    assert found.num_units == 2
    assert all(len({int(name[1:]) % 2 for name in unit}) == 1 for unit in members(graph, found))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [*range(8), *map(slow, range(8, 40))])
def test_every_op_is_in_one_unit_and_colocation_groups_are_whole(name: UnitsName, seed: int):
    graph = random_case(seed).problem().graph
    found = units(graph, name)
    assert sorted(set(found.unit.tolist())) == list(range(found.num_units))
    for group in range(len(graph.colocation.values)):
        assert len(set(found.unit[graph.colocation.index == group].tolist())) == 1
    first = [int(np.flatnonzero(found.unit[graph.order] == unit)[0]) for unit in range(found.num_units)]
    assert first == sorted(first)
    again = units(replace(graph, op_names=tuple(f"renamed {name}" for name in graph.op_names)), name)
    assert np.array_equal(again.unit, found.unit)


def test_ops_are_the_colocation_closure_alone():
    graph = ComputationGraph.from_ops("g", [op("a", colocation="c"), op("b"), op("c", colocation="c")], [(0, 0, 1), (1, 0, 2)])
    assert units(graph, "ops").unit.tolist() == [0, 1, 0]


def test_an_output_counts_once_for_each_unit_that_takes_it():
    ops = [op("a", size=7), op("b", colocation="x"), op("c", colocation="x"), op("d")]
    graph = ComputationGraph.from_ops("g", ops, [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, CONTROL, 3), (1, 0, 2), (2, CONTROL, 3)])
    edges = unit_edges(graph, units(graph, "ops"))
    assert list(zip(edges.src.tolist(), edges.dst.tolist(), edges.bytes.tolist(), strict=True)) == [(0, 1, 7), (0, 2, 7), (1, 2, 0)]


def test_derived_columns_and_expansion_by_hand():
    ops = [
        replace(op("a", 5, 3, colocation="x"), persistent_bytes=10),
        op("b", 7, 4),
        Op("c", "Op", (Output(4, alias_of=(1, 0)),), persistent_bytes=1, colocation="x", time_ns={"gpu": 2}),
    ]
    posed = problem(ComputationGraph.from_ops("g", ops, [(1, 0, 2)]), equal_gpus(2))
    found = units(posed.graph, "ops")
    assert found.unit.tolist() == [0, 1, 0]
    assert work_ns(posed, found).tolist() == [[7, 7], [7, 7]]
    assert persistent_bytes(posed.graph, found).tolist() == [11, 0] and output_bytes(posed.graph, found).tolist() == [3, 4]
    assert expand(found, np.array([1, 0], dtype=np.int32)).tolist() == [1, 0, 1]
    assert expand(found, np.array([[1, 0], [0, 1]], dtype=np.int32)).tolist() == [[1, 0, 1], [0, 1, 0]]


def test_a_unit_stands_where_all_its_ops_may():
    devices = tuple(Device(name, kind, 1, 1, 1) for name, kind in (("cpu:0", "cpu"), ("gpu:0", "gpu")))
    ops = [Op("a", "Op", colocation="x", allowed=("gpu",)), Op("b", "Op"), Op("c", "Op", colocation="x")]
    posed = problem(ComputationGraph.from_ops("g", ops, []), Cluster("c", devices, ()))
    assert allowed(posed, units(posed.graph, "ops")).tolist() == [[False, True], [True, True]]
    ops[2] = replace(ops[2], allowed=("cpu",))
    posed = problem(ComputationGraph.from_ops("g", ops, []), Cluster("c", devices, ()))
    with pytest.raises(ValueError, match=r"op 'a': no device of c is allowed"):
        allowed(posed, units(posed.graph, "ops"))


def test_kept_is_what_is_persistent_results_and_what_a_later_pass_reads():
    ops = [
        op("w", 1, 7, persistent_bytes=50, phase="forward"),
        op("x", 1, 20, phase="forward"),
        op("y", 1, 30, phase="forward"),
        Op("loss", "Op", (Output(4, is_result=True),), time_ns={"gpu": 1}, phase="forward"),
        op("gradient", 1, 60, phase="backward_data"),
    ]
    edges = [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4), (2, 0, 4)]
    graph = ComputationGraph.from_ops("kept", ops, edges)
    assert kept_bytes(graph, units(graph, "ops")).tolist() == [50, 0, 30, 4, 0]
    plain = ComputationGraph.from_ops("plain", [replace(each, phase=None) for each in ops], edges)
    assert kept_bytes(plain, units(plain, "ops")).tolist() == [57, 20, 30, 4, 60]


def test_free_copies_share_no_unit_of_weights_and_their_gradients_are_in_no_family():
    one = gp.problem("squeezenet", cluster="k40-2").graph
    together, free = (Parallelism(3, copies).of(one) for copies in ("together", "free"))
    plain, apart = units(together, "weights"), units(free, "weights")
    copies = free.copies
    again = (copies.micro_batch != NONE) & ~copies.added
    for unit in range(apart.num_units):
        members = np.flatnonzero(apart.unit == unit)
        assert len(set(copies.micro_batch[members][again[members]].tolist())) <= 1
        assert not (again[members].any() and free.persistent_bytes[members].any())
    assert apart.num_units > plain.num_units >= units(one, "weights").num_units
