"""Budgets: what is left of them."""

import time
from dataclasses import replace

import numba
import numpy as np
import pytest
from support.graphs import chains

from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.clock import compiling_s
from gnnplace.baselines.single import single_gpu
from gnnplace.placement import Placement
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate


class Clock:
    """Tells the time that it is given."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_evaluations_are_counted_down():
    budget = Budget(evaluations=5)
    assert (budget.used, budget.allows(4)) == (0, 4)
    budget.pay(4)
    assert (budget.used, budget.allows(4)) == (0.8, 1)
    budget.pay(1)
    assert (budget.used, budget.allows(4)) == (1, 0)


def test_time_runs(clock):
    budget = Budget(evaluations=100, seconds=4.0, clock=clock)
    clock.now += 1
    assert (budget.used, budget.allows(7)) == (0.25, 7)
    budget.spent = 50
    assert budget.used == 0.5
    clock.now += 3
    assert (budget.used, budget.allows(7)) == (1, 0)


def test_time_stands_still_while_numba_compiles():
    @numba.njit
    def triangle(n):
        return n * (n - 1) // 2

    before, outer = compiling_s(), time.monotonic()
    budget, inner = Budget(seconds=1000.0), time.monotonic()
    assert triangle(4) == 6
    least = time.monotonic() - inner
    used_s, compiled = 1000 * budget.used, compiling_s() - before
    most = time.monotonic() - outer
    assert 0 < compiled <= least
    assert least - compiled - 1e-6 <= used_s <= most - compiled + 1e-6


def test_a_share_of_what_is_left_begins_now(clock):
    budget = Budget(evaluations=100, seconds=4.0, clock=clock)
    budget.spent, clock.now = 20, 101.0
    share = budget.left(0.5)
    assert (share.evaluations, share.seconds, share.used, budget.seconds_left) == (40, 1.5, 0, 3.0)
    clock.now = 110.0
    budget.spent = 100
    assert budget.seconds_left == -6 and budget.left(0.5).evaluations == 1 and budget.left(0.5).used == 0
    assert Budget(evaluations=10).left(0.5).seconds is None and Budget(seconds=10.0).left(0.5).evaluations is None


def test_a_part_begins_with_the_whole_and_ends_before(clock):
    budget = Budget(evaluations=100, seconds=4.0, clock=clock)
    budget.spent, clock.now = 20, 101.0
    part = budget.until(0.5)
    assert (part.evaluations, part.seconds, part.spent, part.seconds_left, part.used) == (50, 2.0, 20, 1.0, 0.5)
    assert part.allows(40) == 30
    clock.now = 102.0
    assert (part.used, part.allows(40), budget.used) == (1.0, 0, 0.5)
    assert Budget(evaluations=1).until(0.5).allows(2) == 1
    assert Budget(evaluations=10).until(0.5).seconds is None and Budget(seconds=10.0).until(0.5).evaluations is None


@pytest.mark.parametrize(
    ("given", "words"), [({}, "needs an end"), ({"evaluations": 0}, "0 evaluations"), ({"seconds": -1.0}, r"-1\.0 seconds")]
)
def test_no_budget_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        Budget(**given)


def test_what_a_planner_evaluates_counts():
    budget, posed = Budget(evaluations=100), chains(2, 3, 2)
    evaluate = budget.metered(simulate)
    assert isinstance(evaluate, Evaluator)
    assert (single_gpu(posed, evaluate).device == single_gpu(posed, simulate).device).all()
    assert budget.spent == 2


def test_a_budget_and_its_parts_end_where_a_step_reaches_the_bound():
    posed = chains(1, 2, 2)
    budget = Budget(evaluations=100, bound_ns=2000)
    part, rest = budget.left(0.1), budget.until(0.5)
    watched = part.metered(simulate)
    split, together = (Placement(np.array(device, np.int32)) for device in ([0, 1], [1, 1]))
    assert watched(posed, [split])[0].step_time_ns > 2000 and [each.allows(5) for each in (budget, part, rest)] == [5, 5, 5]
    watched(posed, [split, together])
    assert [(each.used, each.allows(5)) for each in (budget, part, rest)] == [(1, 0)] * 3
    other = Budget(evaluations=100)
    other.metered(simulate)(posed, [together])
    assert other.allows(5) == 5 and isinstance(watched, Evaluator)


def test_a_step_that_overflows_reaches_no_bound():
    posed = chains(1, 2, 2)
    small = replace(posed, cluster=replace(posed.cluster, devices=tuple(replace(each, memory_bytes=1) for each in posed.cluster.devices)))
    budget = Budget(evaluations=100, bound_ns=10**9)
    (result,) = budget.metered(simulate)(small, [Placement(np.array([1, 1], np.int32))])
    assert result.infeasible is not None and budget.allows(5) == 5


def test_a_budget_may_have_started_before(clock):
    budget = Budget(seconds=4.0, clock=clock, started=clock.now - 1)
    assert (budget.used, budget.seconds_left) == (0.25, 3.0)


def test_what_a_part_spends_its_whole_has_spent_and_no_evaluation_is_paid_twice():
    posed, budget = chains(1, 2, 2), Budget(evaluations=100)
    budget.pay(10)
    share, beginning = budget.left(0.5), budget.until(0.5)
    within = share.left(0.5)
    placements = [Placement(np.array(device, np.int32)) for device in ([0, 1], [1, 1])]
    within.metered(budget.metered(simulate))(posed, placements)
    assert [each.spent for each in (within, share, beginning, budget)] == [2, 2, 10, 12]
    beginning.metered(beginning.metered(simulate))(posed, placements)
    assert [each.spent for each in (within, share, beginning, budget)] == [2, 2, 12, 14]
    other = Budget(evaluations=100)
    other.metered(share.metered(simulate))(posed, placements[:1])
    assert [each.spent for each in (other, share, budget)] == [1, 3, 15]


def test_what_a_search_proves_is_the_bound_of_all_that_share_it():
    posed = chains(1, 2, 2)
    budget = Budget(evaluations=100)
    part = budget.left(0.5)
    part.prove(1000)
    part.prove(500)
    assert budget.bound_ns == part.bound_ns == 1000
    budget.metered(simulate)(posed, [Placement(np.array([1, 1], np.int32))])
    assert budget.allows(5) == 5
    part.prove(2000)
    budget.metered(simulate)(posed, [Placement(np.array([1, 1], np.int32))])
    assert (budget.allows(5), part.allows(5)) == (0, 0)
