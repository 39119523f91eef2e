"""Profiled costs: which time counts where, and what is refused rather than filled in."""

from dataclasses import replace

import numpy as np
import pytest

from gnnplace.cluster import Cluster, Device
from gnnplace.costs import measured, roofline
from gnnplace.costs.measured import NOT_MEASURED, MeasuredCosts
from gnnplace.graph import ComputationGraph, Op, Output

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
