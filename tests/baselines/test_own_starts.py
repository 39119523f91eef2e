"""A search's own starts in a step of several micro-batches: stages in several orders, and the fastest in the others."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import chains

import gnnplace as gp
from gnnplace.baselines import own_starts
from gnnplace.baselines.improve import improve
from gnnplace.baselines.own_starts import ORDERS, OTHERS, RANDOM, STARTS, own_start
from gnnplace.baselines.sampled_stages import stage_placement
from gnnplace.baselines.searching.budget import Budget
from gnnplace.simulator.simulator import simulate


class Watched:
    """The simulator, and all that it has simulated."""

    def __init__(self):
        self.tried = []
        self.results = []

    def __call__(self, posed, placements, **options):
        results = simulate(posed, placements, **options)
        self.tried += placements
        self.results += results
        return results


def started(posed, seed=0, **options):
    watched = Watched()
    return own_start(posed, watched, np.random.default_rng(seed), Budget(evaluations=64), **options), watched


@pytest.mark.parametrize("copies", ["together", "free"])
def test_several_orders_take_turns_and_the_fastest_is_tried_in_the_others(copies, monkeypatch):
    posed, cut = gp.problem("squeezenet", cluster="k40-4", micro_batches=4, copies=copies), []
    monkeypatch.setattr(own_starts, "stage_placement", lambda *given: cut.append(stage_placement(*given)) or cut[-1])
    start, watched = started(posed)
    orders = [each.schedule for each in watched.tried]
    assert len(orders) == STARTS and orders[:RANDOM] == 2 * list(ORDERS)
    assert [each in cut for each in watched.tried[:RANDOM]] == 2 * [False, True, True, True]
    assert len(set(orders[-OTHERS - 1 :])) == 3
    assert any(np.array_equal(watched.tried[-1].device, each.device) for each in watched.tried[:-OTHERS])
    times = [result.feasible_ns for result in watched.results if result.feasible_ns]
    assert simulate(posed, [start])[0].step_time_ns == min(times)


def test_a_list_that_feeds_back_keeps_the_order_of_the_fastest():
    _, watched = started(gp.problem("squeezenet", cluster="k40-4", micro_batches=4))
    for number in range(RANDOM, STARTS - OTHERS):
        times = [result.feasible_ns or 2**62 for result in watched.results[:number]]
        assert watched.tried[number].schedule == watched.tried[int(np.argmin(times))].schedule


def test_a_schedule_that_is_said_is_kept_and_the_climb_keeps_that_of_its_start():
    posed = gp.problem("squeezenet", cluster="k40-4", micro_batches=4)
    _, watched = started(posed, schedule="fifo")
    assert {each.schedule for each in watched.tried} == {"fifo"} and len(watched.tried) == STARTS
    start, _ = started(posed)
    placement = improve(posed, simulate, np.random.default_rng(0), budget=Budget(evaluations=64))
    assert placement.schedule == start.schedule != "critical-path"


def test_a_step_of_one_micro_batch_is_under_the_critical_path():
    _, watched = started(chains(4, 4, 3))
    assert {each.schedule for each in watched.tried} == {"critical-path"}


@pytest.mark.parametrize("count", [1, 2, RANDOM, RANDOM + 1, STARTS])
def test_as_many_starts_as_are_asked_for(count):
    _, watched = started(gp.problem("squeezenet", cluster="k40-4", micro_batches=4), count=count)
    assert len(watched.tried) == (count if count > 1 else 0)
