"""Planners of pipeline schedules on networks of the corpus: orders that have an end, and what each schedule holds."""

from __future__ import annotations

import numpy as np
import pytest
from support.slow import slow

import gnnplace as gp
from gnnplace.baselines.pipelines.gpipe import gpipe
from gnnplace.baselines.pipelines.interleaved import interleaved_1f1b
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b
from gnnplace.baselines.pipelines.pipelined import pipelined
from gnnplace.placement import check
from gnnplace.portfolio import planners
from gnnplace.simulator.simulator import simulate


@pytest.mark.parametrize(
    ("network", "cluster", "copies"),
    [slow("transformer-xl-2", "k40-4", 4), ("dlrm", "mixed-4", 3), slow("gat", "k40-4", 3), slow("resnet-50-inference", "k40-2", 2)],
)
def test_every_schedule_runs_to_its_end(network: str, cluster: str, copies: int):
    problem = gp.problem(network, cluster=cluster, micro_batches=copies)
    for name, plan in planners.PIPELINES.items():
        placement = plan(problem, simulate)
        (result,) = simulate(problem, [placement])
        assert check(problem, placement) is None and placement.schedule == "in-order", name
        assert result.infeasible is None and result.step_time_ns is not None, name


def test_1f1b_holds_less_than_gpipe_where_neither_waits_longer():
    problem = gp.problem("transformer-xl-4", cluster="k40-4", micro_batches=8)
    placements = [pipelined(problem, simulate, rule=rule) for rule in (gpipe, one_f_one_b)]
    first, second = simulate(problem, placements)
    assert first.peak_memory_bytes.max() > 1.5 * second.peak_memory_bytes.max()
    assert second.step_time_ns <= 1.01 * first.step_time_ns


def test_rounds_use_as_many_devices_as_divide_the_micro_batches():
    problem = gp.problem("transformer-xl-8", cluster="k40-4", micro_batches=3)
    assert len(np.unique(pipelined(problem, simulate, rule=interleaved_1f1b).device)) == 3


def test_a_search_starts_from_what_is_fastest_under_its_own_schedule():
    problem = gp.problem("dlrm", cluster="k40-2", micro_batches=2)
    start = planners.best_heuristic(problem, simulate, "memory")
    assert start.schedule == "memory" and planners.best_heuristic(problem, simulate).schedule == "critical-path"


def test_who_needs_micro_batches_says_so_and_stays_out_of_comparisons():
    one, several = gp.problem("dlrm", cluster="k40-2"), gp.problem("dlrm", cluster="k40-2", micro_batches=2)
    of_one_each = gp.problem("dlrm", cluster="k40-2", micro_batches=2, replicas=2)
    unequal = gp.problem("dlrm", cluster="k40-2", micro_batches=6, replicas=2, shares=[2, 4])
    for problem in (one, of_one_each, unequal):
        assert not planners.planners(problem, simulate, 0).keys() & planners.PIPELINES.keys()
        with pytest.raises(ValueError, match="planner '1f1b': needs several micro-batches, as many for each replica, with copies together"):
            gp.place(problem, "1f1b")
    assert planners.planners(several, simulate, 0).keys() > planners.PIPELINES.keys()
    assert gp.place(several, "1f1b").schedule == "in-order"
