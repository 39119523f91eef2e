"""From nothing but own evaluations: the budget, starts, and what a learned ranking changes."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op

from gnnplace.baselines import improve as improving
from gnnplace.baselines import own_starts
from gnnplace.baselines.improve import improve
from gnnplace.baselines.own_starts import STARTS, own_start
from gnnplace.baselines.searching.budget import Budget
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement, check
from gnnplace.simulator.simulator import simulate


def watched(asked):
    def evaluate(posed, placements, *, timeline=False, limit_ns=None):
        asked.append((len(placements), timeline))
        return simulate(posed, placements, timeline=timeline, limit_ns=limit_ns)

    return evaluate


@pytest.mark.parametrize("evaluations", [1, 2, 5, 16, 64, 200])
def test_it_keeps_to_its_budget(evaluations):
    posed, asked, budget = chains(5, 6, 3), [], Budget(evaluations=evaluations)
    found = improve(posed, watched(asked), np.random.default_rng(0), budget=budget)
    assert check(posed, found) is None
    assert sum(count for count, _ in asked) == budget.spent <= evaluations
    assert all(timeline for _, timeline in asked)
    lists = Budget(evaluations=evaluations)
    own_start(posed, simulate, np.random.default_rng(0), lists)
    assert lists.spent <= min(STARTS, 0.375 * evaluations)
    assert evaluations < 5 or budget.spent == evaluations


def test_a_start_is_improved_and_no_list_schedule_is_drawn_then(monkeypatch):
    monkeypatch.setattr(improving, "own_start", None)
    posed, asked = chains(5, 6, 3), []
    start = Placement(np.zeros(30, dtype=np.int32))
    found = improve(posed, watched(asked), np.random.default_rng(0), budget=Budget(evaluations=40), start=start)
    assert all(timeline for _, timeline in asked)
    before, after = simulate(posed, [start, found])
    assert after.step_time_ns < before.step_time_ns


def test_the_same_generator_gives_the_same_placement():
    first, second, other = (
        improve(chains(5, 6, 3), simulate, np.random.default_rng(seed), budget=Budget(evaluations=30)).device for seed in (1, 1, 2)
    )
    assert np.array_equal(first, second) and not np.array_equal(first, other)


def test_where_no_list_schedule_fits_the_one_that_overflows_least_is_repaired(monkeypatch):
    ops = [op(f"{i}", 1000, 100, persistent_bytes=1000) for i in range(24)]
    posed = problem(ComputationGraph.from_ops("layers", ops, [(i, 0, i + 1) for i in range(23)]), equal_gpus(2, memory_bytes=18_000))
    full, more = (Placement(np.where(np.arange(24) < last, 1, 0).astype(np.int32)) for last in (2, 0))
    proposed = cycle([more, full])
    monkeypatch.setattr(own_starts, "list_schedule", lambda *given: next(proposed))
    budget = Budget(evaluations=64)
    start = own_start(posed, simulate, np.random.default_rng(0), budget)
    overflows, fits = simulate(posed, [full, start])
    assert overflows.infeasible and fits.infeasible is None
    assert start.device[:2].tolist() == [1, 1] and STARTS < budget.spent < 64
