"""Profiled costs: which time counts where, and what is refused rather than filled in."""

from dataclasses import replace

import numpy as np
import pytest

from gnnplace.cluster import Cluster, Device
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import measured, roofline
from gnnplace.costs.measured import NOT_MEASURED, MeasuredCosts
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.transformations.micro_batches import micro_batches

GRAPH = ComputationGraph.from_ops("two", [Op("x", "Read", (Output(8),)), Op("host", "Log", allowed=("cpu",))], [])
CPU, GPU, OTHER_GPU = (Device(name, name[:3], 100, 10**9, 10**9) for name in ("cpu:0", "gpu:0", "gpu:1"))
TIMES = {"cpu": [4, 0], "gpu": [20, NOT_MEASURED], "gpu:1": [10, NOT_MEASURED]}


def costs(times=TIMES, graph=GRAPH):
    return MeasuredCosts(graph.name, graph.sha256, graph.op_names, {key: np.array(column) for key, column in times.items()})


def cluster(*devices):
    return Cluster("some", devices, ())


def test_the_name_wins_over_the_kind_and_0_is_raised_to_1():
    problem = measured.problem(GRAPH, cluster(CPU, GPU, OTHER_GPU), costs(TIMES | {"cpu": [4, 0]}))
    assert problem.time_ns[0].tolist() == [4, 20, 10]
    assert problem.time_ns[1, 0] == 1 and problem.allowed[1].tolist() == [True, False, False]


def test_where_an_op_may_not_stand_it_lasts_the_longest_of_its_times():
    assert measured.time_ns(GRAPH, cluster(CPU, GPU), costs(TIMES | {"cpu": [4, 9]}))[1].tolist() == [9, 9]


def test_times_that_an_op_gives_win_and_need_no_measured_ones():
    given = ComputationGraph.from_ops("given", [Op("x", "Read", time_ns={"gpu": 7}), Op("y", "Read")], [])
    both = costs({"cpu": [3, 3], "gpu": [NOT_MEASURED, 5]}, given)
    assert measured.time_ns(given, cluster(CPU, GPU), both).tolist() == [[7, 7], [3, 5]]


def test_a_time_that_was_not_measured_is_never_made_up():
    with pytest.raises(
        ValueError, match=r"op 'x': no measured time for device kind 'gpu' \(device 'gpu:0'\); the costs have times for cpu"
    ):
        measured.problem(GRAPH, cluster(CPU, GPU), costs({"cpu": [4, 1]}))
    with pytest.raises(ValueError, match="op 'x': no measured time for device kind 'gpu'"):
        measured.problem(GRAPH, cluster(CPU, GPU), costs({"cpu": [4, 1], "gpu": [NOT_MEASURED, NOT_MEASURED]}))
    with pytest.raises(ValueError, match="op 'host': no measured time for device kind 'gpu'"):
        measured.problem(GRAPH, cluster(GPU), costs({"gpu": [4, NOT_MEASURED]}))


def test_a_roofline_stands_in_for_kinds_that_the_caller_names():
    found = measured.time_ns(GRAPH, cluster(CPU, GPU), costs({"cpu": [4, 1]}), roofline_kinds=("gpu",))
    assert found[:, 0].tolist() == [4, 1]
    assert np.array_equal(found[:, 1], roofline.time_ns(GRAPH, cluster(GPU))[:, 0]) and found[0, 1] == 8
    with pytest.raises(ValueError, match="device 'gpu:0': its times were measured, so kind 'gpu' needs no roofline"):
        measured.time_ns(GRAPH, cluster(CPU, GPU), costs(), roofline_kinds=("gpu",))


def test_a_contended_memory_slows_measured_times_by_the_ratio_of_the_roofline():
    """By the roofline x takes 8 ns alone and 16 beside another; the other two ops have no traffic, or say themselves what they take."""
    ops = [Op("x", "Read", (Output(8),)), Op("y", "Jump"), Op("z", "Read", (Output(8),), time_ns={"cpu": 7, "gpu": 7})]
    graph = ComputationGraph.from_ops("three", ops, [])
    shared = replace(GPU, memory="host", contended_memory_bytes_per_s=5 * 10**8)
    found = measured.problem(graph, cluster(replace(CPU, memory="host"), shared), costs({"cpu": [4, 1, 1], "gpu": [20, 3, 1]}, graph))
    assert found.time_ns.tolist() == [[4, 20], [1, 3], [7, 7]]
    assert found.contended_ns is not None and found.contended_ns.tolist() == [[4, 40], [1, 3], [7, 7]]
    assert measured.problem(graph, cluster(CPU, GPU), costs({"cpu": [4, 1, 1], "gpu": [20, 3, 1]}, graph)).contended_ns is None


def test_costs_of_another_graph_are_refused():
    with pytest.raises(ValueError, match=r"the costs are those of 'two' \(sha256 .*\), not of 'other'"):
        measured.problem(replace(GRAPH, name="other"), cluster(CPU), costs())


def test_a_slowdown_beyond_all_limits_is_no_time_that_fits():
    """A memory that is 2^40 times slower beside another device: the time would not fit 64 bits, and is not that of the op alone."""
    slow = [replace(device, memory="host", memory_bytes_per_s=2**40, contended_memory_bytes_per_s=1) for device in (GPU, OTHER_GPU)]
    graph = ComputationGraph.from_ops("one", [Op("x", "Read", (Output(2**40),))], [])
    with pytest.raises(ValueError, match=r"less than 2\^53 are due"):
        measured.problem(graph, cluster(*slow), costs({"gpu": [2**45]}, graph))


def test_measured_times_need_no_roofline_that_can_be_counted():
    unknown = replace(GPU, flops_per_s=1, memory_bytes_per_s=1)
    graph = ComputationGraph.from_ops("one", [Op("x", "Read", flops=2**60)], [])
    assert measured.problem(graph, cluster(unknown), costs({"gpu": [7]}, graph)).time_ns.tolist() == [[7]]


def test_copies_take_the_time_of_their_op_and_what_is_added_a_roofline():
    ops = [
        Op("w", "Variable", (Output(400, (100,)),), persistent_bytes=400, kernel=False, canonical_kind="variable"),
        Op("x", "Input", (Output(400, (100,)),), kernel=False, canonical_kind="input"),
        Op("product", "MatMul", (Output(400, (100,)),), phase="forward"),
        Op("gradient", "MatMul", (Output(400, (100,)),), phase="backward_weight"),
        Op("update", "Update", (), phase="update"),
    ]
    graph = ComputationGraph.from_ops("net", ops, [(0, 0, 2), (1, 0, 2), (2, 0, 3), (0, 0, 4), (3, 0, 4)])
    step, machine = micro_batches(graph, 3), cluster(CPU)
    found = measured.time_ns(step, machine, costs({"cpu": [1, 2, 70, 90, 50]}, graph))[:, 0]
    assert dict(zip(step.op_names, found.tolist(), strict=True)) == {
        "w": 1, **{f"{name}@{copy}": ns for name, ns in (("x", 2), ("product", 70), ("gradient", 90)) for copy in range(3)},
        "update": 50, "gradient/sum@1": 1200, "gradient/sum@2": 1200,
    }  # fmt: skip
    assert np.array_equal(found[-2:], roofline.time_ns(step, machine)[-2:, 0])
    with pytest.raises(ValueError, match=r"the costs are those of 'two' .* not of 'net'"):
        measured.time_ns(step, machine, costs())


def test_an_update_of_the_rows_of_all_micro_batches_takes_as_much_longer_as_its_roofline():
    graph = manifest.graph("dlrm")
    step, machine = micro_batches(graph, 4), clusters.cluster("k40-2")
    one, all_ns = roofline.time_ns(graph, machine), roofline.time_ns(step, machine)
    kinds = {"cpu": one[:, 0].copy(), "gpu": one[:, 1].copy()}
    assert np.array_equal(measured.time_ns(step, machine, MeasuredCosts(graph.name, graph.sha256, graph.op_names, kinds)), all_ns)
    by_rows = ~step.copies.added & (all_ns > one[step.copies.source]).any(axis=1)
    assert by_rows.any() and (step.copies.micro_batch[by_rows] == -1).all()
