"""Bounds: worked by hand, and never above the optimum of exhaustive search on small random problems."""

import itertools

import numpy as np
import pytest
from graphs import chains, equal_gpus
from random_problems import random_case

from gnnplace.costs.roofline import problem
from gnnplace.evaluate.bounds import bounds, lower_bound
from gnnplace.evaluate.simulator import simulate
from gnnplace.graph import ComputationGraph, Op
from gnnplace.placement import Placement


def test_chains_by_hand():
    found = bounds(chains(3, 4, 2, time_ns=1000))  # 12,000 ns of work, two devices, paths of 4,000 ns
    assert found["critical-path"] == 4000
    assert found["load"] == 6000
    assert 5990 <= found["prices"] <= 6000


def test_prices_see_unequal_devices():
    ops = [Op(f"op{i}", "Op", time_ns={"gpu:0": 100, "gpu:1": 300}) for i in range(30)]
    made = problem(ComputationGraph.from_ops("unequal", ops, []), equal_gpus(2))
    assert bounds(made)["load"] == 1500
    assert 2230 <= bounds(made)["prices"] <= 2250  # 3/4 of the work on the fast device: 22.5 ops of 100 ns


@pytest.mark.parametrize("seed", range(150))
def test_never_above_a_feasible_step_of_small_problems(seed):
    made = random_case(seed).problem()
    devices = itertools.islice(itertools.product(range(made.num_devices), repeat=made.num_ops), 2000)
    results = simulate(made, [Placement(np.array(device, dtype=np.int32)) for device in devices])
    assert all(lower_bound(made) <= result.feasible_ns for result in results if result.feasible_ns is not None)
