"""The schedules' priorities: worked by hand, and what holds of any."""

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op, peaks, step
from support.random_problems import random_case
from support.slow import slow

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.graph import CONTROL, Output
from gnnplace.placement import RULES, Placement, missing_link
from gnnplace.schedules.priorities import computed, priorities
from gnnplace.schedules.ranks import rank_ns
from gnnplace.simulator.simulator import simulate, simulate_devices

ALL_LINKED = gpus(link(0, 1), link(1, 0), link(0, 2), link(2, 0), link(1, 2), link(2, 1))


def of(posed, device, schedule):
    return priorities(posed, Placement(np.array(device, np.int32), schedule)).tolist()


def fork():
    return made([op("a", 5, 10), op("b", 7), op("c", 20)], [(0, 0, 1), (0, CONTROL, 2)], ALL_LINKED)


def test_schedules_without_ranks():
    posed, device = fork(), np.zeros(3, np.int32)
    assert of(posed, device, "fifo") == [0, 0, 0]
    assert priorities(posed, Placement(device, "given", np.array([3, 1, 2]))).tolist() == [3, 1, 2]
    assert of(posed, device, "critical-path") == rank_ns(posed, device).tolist() == [25, 7, 20]


def test_depth_counts_ops_by_hand():
    """A short op before a chain of two goes before a long one that is alone; neither times nor devices matter."""
    ops = [op("long", 100), op("first", 1, 8), op("second", 1), op("third", 1)]
    posed = made(ops, [(1, 0, 2), (2, CONTROL, 3), (1, 0, 3)], ALL_LINKED)
    assert of(posed, [0, 0, 0, 0], "depth") == of(posed, [0, 1, 2, 0], "depth") == [1, 3, 2, 1]
    assert step(posed, 0, 0, 1, 1, schedule="depth").step_time_ns == 101
    assert step(posed, 0, 0, 1, 1, schedule="critical-path").step_time_ns == 100 + 1 + 8 + 1 + 1


def test_depth_needs_no_order_of_the_document():
    assert of(made([op("last", 1), op("first", 1, 1), op("middle", 1, 1)], [(1, 0, 2), (2, 0, 0)], gpus()), [0, 0, 0], "depth") == [1, 3, 2]


def test_memory_order_by_hand():
    """Two branches that each make 100 bytes and turn them into 1: one is finished before the other makes its own."""
    ops = [op("make a", 1, 100), op("make b", 9, 100), op("sum a", 1, 1), op("sum b", 1, 1), op("join", 1)]
    posed = made(ops, [(0, 0, 2), (1, 0, 3), (2, 0, 4), (3, 0, 4)], gpus())
    assert of(posed, [0] * 5, "memory") == [3, 5, 2, 4, 1]  # equal at first: b is of the higher rank
    assert peaks(step(posed, *[0] * 5, schedule="memory"))[0] == 102  # 1 of a's sum, then 100 and 1 of b's
    assert peaks(step(posed, *[0] * 5, schedule="critical-path"))[0] == 201


def test_memory_order_counts_copies_on_other_devices():
    """What is sent needs a buffer where it goes, once for all that wait there."""
    ops = [op("local", 1, 15), op("sent", 1, 10), op("uses", 1), op("far", 1), op("farther", 1)]
    posed = made(ops, [(0, 0, 2), (1, 0, 2), (1, 0, 3), (1, 0, 4)], ALL_LINKED)
    assert of(posed, [0, 0, 0, 0, 0], "memory") == [2, 5, 1, 4, 3]  # 10 bytes before 15
    assert of(posed, [0, 0, 0, 1, 1], "memory") == [5, 4, 3, 2, 1]  # 15 bytes before 20; then what releases 25


def test_what_comes_back_to_where_it_was_made_needs_no_copy():
    ops = [op("a", 1, 10), op("view", 1, Output(12, alias_of=(0, 0))), op("back", 1), op("b", 1, 5), op("uses b", 1)]
    posed = made(ops, [(0, 0, 1), (1, 0, 2), (3, 0, 4)], ALL_LINKED)
    assert of(posed, [0, 1, 0, 1, 1], "memory") == [3, 2, 1, 5, 4]
    first = made([*ops[:4], op("uses b", 1, 0)], [(0, 0, 1), (1, 0, 2), (3, 0, 4), (0, CONTROL, 4)], ALL_LINKED)
    assert of(first, [0, 1, 0, 1, 1], "memory") == [4, 3, 2, 5, 1]  # the view releases 10 bytes and adds none: before what releases 5


def test_memory_order_sees_aliases_and_results():
    view = Output(50, alias_of=(0, 0))
    ops = [op("made", 1, 50), op("view", 1, view), op("reads", 1), op("other", 1, 20)]
    posed = made(ops, [(0, 0, 1), (1, 0, 2)], gpus())
    assert of(posed, [0] * 4, "memory") == [3, 2, 1, 4]  # `other` is used by nobody: it adds nothing; a view adds nothing either
    kept = made([*ops[:3], op("other", 1, Output(20, is_result=True))], [(0, 0, 1), (1, 0, 2)], gpus())
    assert of(kept, [0] * 4, "memory") == [3, 2, 1, 4]  # 20 bytes before 50
    larger = made([*ops[:3], op("other", 1, Output(60, is_result=True))], [(0, 0, 1), (1, 0, 2)], gpus())
    assert of(larger, [0] * 4, "memory") == [4, 3, 2, 1]  # 60 bytes that no use releases: at the end


def test_a_placement_that_overflows_fits_in_memory_order():
    ops = [op(f"{what} {i}", 1, size) for i in range(4) for what, size in (("make", 100), ("sum", 1))]
    ops += [op("join", 1)]
    edges = [(2 * i, 0, 2 * i + 1) for i in range(4)] + [(2 * i + 1, 0, 8) for i in range(4)]
    posed = made(ops, edges, gpus(memory_bytes=110))
    under = {schedule: step(posed, *[0] * 9, schedule=schedule) for schedule in RULES}
    assert under["memory"].infeasible is None and peaks(under["memory"])[0] == 104
    assert "gpu:0 needs" in str(under["critical-path"].infeasible) and under["critical-path"].step_time_ns == 9


def test_a_missing_link_is_refused_by_name():
    posed = made([op("a", 1, 1), op("b", 1)], [(0, 0, 1)], gpus(link(0, 1)))
    for schedule in ("critical-path", "memory"):
        with pytest.raises(ValueError, match=f"{schedule}: edge 'a' -> 'b' needs a link from gpu:1 to gpu:0"):
            of(posed, [1, 0], schedule)
    assert of(posed, [1, 0], "depth") == [2, 1]
    (result,) = simulate(posed, [Placement(np.array([1, 0], np.int32), "memory")])
    assert result.step_time_ns is None and "needs a link" in str(result.infeasible)


@pytest.mark.parametrize("seed", [*range(15), *map(slow, range(15, 60))])
def test_rules_give_orders_that_the_simulator_takes(seed):
    case = random_case(seed)
    posed, device = case.problem(), np.array(case.device, np.int32)
    if missing_link(posed, device) is not None:
        return
    graph, prioritised = posed.graph, {rule: priorities(posed, Placement(device, rule)) for rule in RULES}
    for rule in ("depth", "memory"):
        assert (prioritised[rule][graph.edge_src] > prioritised[rule][graph.edge_dst]).all()
    assert sorted(prioritised["memory"].tolist()) == list(range(1, posed.num_ops + 1))
    ruled = simulate(posed, [Placement(device, rule) for rule in RULES])
    given = simulate(posed, [Placement(device, "given", prioritised[rule]) for rule in RULES])
    assert [result.step_time_ns for result in ruled] == [result.step_time_ns for result in given]
    assert [result.schedule for result in ruled] == list(RULES)
    for rule, result in zip(RULES, ruled, strict=True):
        assert simulate_devices(posed, device[None], rule).step_time_ns.tolist() == [result.step_time_ns]


def test_rows_of_several_schedules_don_t_touch_each_other():
    posed = random_case(3).problem()
    rows = np.array([np.arange(posed.num_ops) % posed.num_devices, np.zeros(posed.num_ops)] * 5, np.uint32)
    schedules = [RULES[i % len(RULES)] if i < 9 else "given" for i in range(10)]
    together = computed(posed, schedules, rows)
    assert all((together[i] == computed(posed, [schedules[i]], rows[i : i + 1])[0]).all() for i in range(10)) and not together[9].any()


def test_equal_names_on_other_clusters_have_their_own_memory_order():
    """The arrays of buffers belong to the graph, those of times to the problem."""
    ops, edges = [op("a", 1, 8), op("b", 1, 8), op("far", 1)], [(0, 0, 2), (1, 0, 2)]
    devices = (Device("gpu:0", "gpu", 100, 10**9, 10**9), Device("gpu:1", "gpu", 100, 10**9, 10**9))
    for latency in (0, 50):
        posed = made(ops, edges, Cluster("pair", devices, (Link("gpu:0", "gpu:1", 10**9, latency_ns=latency),)))
        assert of(posed, [0, 0, 1], "memory") == [3, 2, 1] and of(posed, [0, 0, 1], "critical-path") == [10 + latency, 10 + latency, 1]
