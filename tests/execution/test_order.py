"""A graph in order: what was simulated runs in the same order, at the same times, and an order that waits is slower by hand."""

import numpy as np
import pytest
from support.random_problems import random_case
from support.slow import slow

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.execution.order import in_order
from gnnplace.execution.workload import plan
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement, missing_link
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate


def in_this_order(made: Problem, device: np.ndarray, order: np.ndarray) -> Problem:
    return Problem(in_order(made.graph, device, order), made.cluster, made.time_ns, made.contended_ns)


@pytest.mark.parametrize("seeds", [40, slow(400)])
def test_the_order_of_a_simulated_step_gives_that_step(seeds: int):
    """Where devices run one op at a time; whatever schedule made the order."""
    compared = 0
    for seed in range(seeds):
        case = random_case(seed)
        made, placement = case.problem(), case.placement()
        if missing_link(made, placement.device) or made.cluster.streams.max() > 1:
            continue
        (simulated,) = simulate(made, [placement], timeline=True)
        ordered = in_this_order(made, placement.device, plan(made, placement, simulated.timeline).order)
        (again,) = simulate(ordered, [Placement(placement.device, "fifo")], timeline=True)
        assert again.timeline.start_ns.tolist() == simulated.timeline.start_ns.tolist(), seed
        assert again.peak_memory_bytes.tolist() == simulated.peak_memory_bytes.tolist()
        compared += made.num_devices > 1
    assert compared > seeds // 8


@pytest.mark.parametrize(("order", "step_ns"), [([0, 2, 1], 12), ([0, 1, 2], 17)])
def test_a_device_waits_for_the_next_op_of_its_order_by_hand(order: list[int], step_ns: int):
    """a on gpu:0 (5) sends to b on gpu:1 (5, after 2 of transfer); c on gpu:1 (5) is ready at once, but may have to wait for b."""
    ops = [Op("a", "Op", (Output(1),), time_ns={"gpu": 5}), Op("b", "Op", time_ns={"gpu": 5}), Op("c", "Op", time_ns={"gpu": 5})]
    devices = tuple(Device(f"gpu:{k}", "gpu", 100, 10**9, 10**9) for k in range(2))
    cluster = Cluster("two", devices, (Link("gpu:0", "gpu:1", 10**9, overhead_ns=1),))
    made, device = problem(ComputationGraph.from_ops("late", ops, [(0, 0, 1)]), cluster), np.array([0, 1, 1], np.int32)
    (result,) = simulate(in_this_order(made, device, np.array(order, np.int32)), [Placement(device, "fifo")])
    assert result.step_time_ns == step_ns
