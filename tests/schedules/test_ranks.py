"""Ranks: worked by hand, and a rank is what remains when nothing waits."""

import numpy as np
import pytest
from support.random_problems import random_case
from support.slow import slow

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.placement import Placement, missing_link
from gnnplace.problems import Problem
from gnnplace.schedules.ranks import rank_ns
from gnnplace.simulator.simulator import simulate


def fork(latency_ns: int) -> Problem:
    ops = [Op("a", "Op", (Output(10),), time_ns={"gpu": 5}), Op("b", "Op", time_ns={"gpu": 7}), Op("c", "Op", time_ns={"gpu": 20})]
    devices = tuple(Device(f"gpu:{i}", "gpu", 100, 10**9, 10**9) for i in range(2))
    cluster = Cluster("two", devices, (Link("gpu:0", "gpu:1", 10**9, overhead_ns=3, latency_ns=latency_ns),))
    return problem(ComputationGraph.from_ops("fork", ops, [(0, 0, 1), (0, CONTROL, 2)]), cluster)


def rank(latency_ns: int, device: list[int]) -> list[int]:
    return rank_ns(fork(latency_ns), np.array(device, np.int32)).tolist()


def test_ranks_by_hand():
    assert rank(0, [0, 0, 0]) == [5 + 20, 7, 20]
    assert rank(0, [0, 0, 1]) == [5 + 1 + 20, 7, 20]  # control takes at least 1 ns
    assert rank(9, [0, 0, 1]) == [5 + 9 + 20, 7, 20]
    assert rank(9, [0, 1, 0]) == [5 + (3 + 10 + 9) + 7, 7, 20]


def test_a_missing_link_is_refused_by_name():
    with pytest.raises(ValueError, match="critical-path: edge 'a' -> 'b' needs a link from gpu:1 to gpu:0"):
        rank_ns(fork(0), np.array([1, 0, 1], np.int32))


@pytest.mark.parametrize("seed", [*range(15), *map(slow, range(15, 60))])
def test_given_ranks_make_the_critical_path_schedule_and_no_step_is_shorter_than_a_rank(seed):
    case = random_case(seed)
    made, device = case.problem(), np.array(case.device, np.int32)
    if missing_link(made, device) is not None:
        return
    rank = rank_ns(made, device)
    ranked, given = simulate(made, [Placement(device), Placement(device, "given", rank)])
    assert ranked.step_time_ns == given.step_time_ns >= rank.max()
