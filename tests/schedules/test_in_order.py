"""Devices that keep to an order, in both simulators, and orders without an end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from support.by_hand import gpus, made, op, starts, step
from support.differences import differences
from support.random_problems import random_case

from gnnplace.graph import CONTROL, GraphError
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.schedules.in_order import in_order
from gnnplace.simulator.simulator import simulate


def test_ops_of_equal_priority_keep_the_order_of_the_document():
    ops = [op(name, time) for name, time in (("first", 4), ("third", 3), ("fourth", 5), ("second", 2))]
    assert starts(step(made(ops, [], gpus(streams=2)), 0, 0, 0, 0, schedule="in-order", priority=[9, 7, 7, 8])) == [0, 6, 9, 4]


def test_an_order_against_an_edge_has_no_end():
    result = step(made([op("a", 4), op("b", 3)], [(0, CONTROL, 1)], gpus()), 0, 0, schedule="in-order", priority=[1, 2])
    assert result.infeasible == "in-order: devices wait for one another forever" and result.step_time_ns is None


def test_both_simulators_keep_an_order():
    """The order of a step, with those first that start together and have the lowest level and the highest index."""
    kept = 0
    for seed in range(40):
        case = random_case(seed)
        problem = case.problem()
        (free,) = simulate(problem, [case.placement()], timeline=True)
        if free.timeline is not None:
            order = np.lexsort((-np.arange(problem.num_ops), problem.graph.level, free.timeline.start_ns))
            case = replace(case, schedule="in-order", priority=(-np.argsort(order)).tolist())
            (result,) = simulate(problem, [case.placement()], timeline=True)
            assert not differences(case, result), f"seed {seed}"
            kept += 1
    assert kept > 20


def test_a_device_keeps_an_order_as_control_edges_do():
    """Orders that have an end, and such as have none."""
    ended, waiting = list[bool](), 0
    for seed in range(60):
        problem, drawn = random_case(seed).problem(), np.random.default_rng(seed)
        device = np.array(random_case(seed).placement().device)
        position = np.argsort(problem.graph.order) * 1.0 + drawn.normal(size=problem.num_ops) * (seed % 3)
        placement = Placement(device, "in-order", -np.argsort(np.argsort(position, kind="stable")))
        (kept,) = simulate(problem, [placement], timeline=True)
        order = np.argsort(~placement.priority, kind="stable").astype(np.int32)
        try:
            edges = Problem(in_order(problem.graph, device, order), problem.cluster, problem.time_ns, problem.contended_ns)
        except GraphError:
            assert kept.step_time_ns is None
            waiting += (kept.infeasible or "").startswith("in-order: devices wait")
            continue
        (by_edges,) = simulate(edges, [Placement(device, "given", placement.priority)], timeline=True)
        assert kept.step_time_ns == by_edges.step_time_ns and (kept.infeasible is None) == (by_edges.infeasible is None), seed
        if kept.timeline is not None:
            assert kept.timeline.start_ns.tolist() == by_edges.timeline.start_ns.tolist()
            assert kept.timeline.transfer_start_ns.tolist() == by_edges.timeline.transfer_start_ns.tolist()
            assert kept.peak_memory_bytes.tolist() == by_edges.peak_memory_bytes.tolist()
        ended.append(kept.timeline is not None)
    assert sum(ended) > 20 and waiting > 5
