"""Random list schedules: rules, reproducibility, variety, memory."""

from __future__ import annotations

import numpy as np
from support.graphs import chains, equal_gpus, op
from support.random_problems import tiny_problems

from gnnplace.baselines.sampled_lists import drawn, list_schedule, list_schedules
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import check
from gnnplace.simulator.simulator import simulate


def test_they_keep_the_rules_and_end_with_a_step_time():
    for seed, posed in tiny_problems(range(100), 10**6, 12, ops=3, linked=True):
        source = list_schedules(posed, np.random.default_rng(seed))
        for placement in (source() for _ in range(3)):
            assert check(posed, placement) is None and placement.schedule == "critical-path"


def test_the_same_generator_draws_the_same_schedules_and_they_vary():
    first, second = (list_schedules(chains(6, 5, 3), np.random.default_rng(4)) for _ in range(2))
    devices = [first().device.tolist() for _ in range(12)]
    assert devices == [second().device.tolist() for _ in range(12)]
    assert len({tuple(each) for each in devices}) > 6


def test_one_of_them_balances_chains():
    posed = chains(4, 6, 4)
    source = list_schedules(posed, np.random.default_rng(0))
    times = [result.step_time_ns for result in simulate(posed, [source() for _ in range(24)])]
    assert min(times) == 6000  # each chain on a device of its own


def test_stages_keep_ops_together_and_few_devices_are_used_where_a_share_says_so():
    posed, generator = chains(8, 4, 4, size=0), np.random.default_rng(0)
    plain = drawn(generator)._replace(units_name="ops", view=0, downward=False, disturbed=0.0, staged=0.0, kept=False)
    used = {share: np.unique(list_schedule(posed, plain._replace(share=share), generator).device).size for share in (0.25, 0.5, 1.0)}
    assert used == {0.25: 1, 0.5: 2, 1.0: 4}
    row = problem(ComputationGraph.from_ops("row", [op(f"o{i}", 10) for i in range(40)], [(i, 0, i + 1) for i in range(39)]), equal_gpus(4))
    staged = list_schedule(row, plain._replace(share=1.0, staged=50.0), generator).device
    assert (np.diff(staged) >= 0).all() and np.bincount(staged).tolist() == [10, 10, 10, 10]


def test_what_is_kept_counts_where_the_settings_say_so():
    ops = [op(f"o{i}", 100, 50) for i in range(8)] + [op("sum", 1)]
    posed = problem(ComputationGraph.from_ops("kept", ops, [(i, 0, 8) for i in range(8)]), equal_gpus(2, memory_bytes=300))
    generator = np.random.default_rng(0)
    plain = drawn(generator)._replace(units_name="ops", share=0.5, disturbed=0.0, staged=0.0, view=0)
    blind, careful = (list_schedule(posed, plain._replace(share=1.0, kept=kept), generator) for kept in (False, True))
    assert simulate(posed, [careful])[0].infeasible is None or simulate(posed, [blind])[0].infeasible is not None
