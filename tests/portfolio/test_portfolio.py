"""The portfolio: small problems are searched exactly, others are not; and the order of ops where it is free."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op
from support.exhaustive import exhaustive
from support.graphs import chains, equal_gpus

from experiments.optimality.graphs import Kind, drawn
from gnnplace.baselines import reorder
from gnnplace.baselines.searching.budget import Budget
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.portfolio import planners, portfolio, searches
from gnnplace.portfolio.portfolio import Options, every_placement, placements
from gnnplace.result import FEASIBLE, score
from gnnplace.simulator.simulator import simulate

PUZZLE = Kind(20, 2, 1.0, unequal=True, tight=False, shape=2.0)
RULED = Options(schedule="critical-path")
SOLVED = Kind(20, 2, 0.2, unequal=False, tight=False, shape=0.5)


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The schedules under which CP-SAT was asked from now on."""
    schedules, exact = [], portfolio.exact
    monkeypatch.setattr(portfolio, "exact", lambda *rest, **more: schedules.append(more["schedule"]) or exact(*rest, **more))
    return schedules


def test_a_small_problem_is_searched_exactly_and_the_same_every_time(monkeypatch: pytest.MonkeyPatch):
    schedules, posed, budgets = asked(monkeypatch), drawn(SOLVED, 0), [Budget(evaluations=300) for _ in range(2)]
    first, second = (portfolio.portfolio(posed, simulate, budget, RULED) for budget in budgets)
    assert schedules == ["critical-path"] * 2 and first.planner == second.planner and "exact from" in first.planner
    assert np.array_equal(first.placement.device, second.placement.device) and first.placement.schedule == "critical-path"
    assert budgets[0].spent == budgets[1].spent <= 301  # and the winner's own


@pytest.mark.slow
def test_a_large_problem_and_a_short_time_are_not(monkeypatch: pytest.MonkeyPatch):
    schedules = asked(monkeypatch)
    portfolio.portfolio(chains(2, 2, 2), simulate, Budget(seconds=0.5), RULED)
    monkeypatch.setattr(portfolio, "MAX_CHOICES", 7)
    for schedule in ("critical-path", "given"):
        found = portfolio.portfolio(chains(2, 2, 2), simulate, Budget(evaluations=300), Options(schedule=schedule))
        assert found.score.step_time_ns == 2000 and found.placement.schedule == "critical-path"
    assert schedules == []


@pytest.mark.slow
def test_where_the_order_is_free_a_step_is_never_longer(monkeypatch: pytest.MonkeyPatch):
    schedules, posed, budget = asked(monkeypatch), drawn(PUZZLE, 0), Budget(evaluations=600)
    under, free = portfolio.portfolio(posed, simulate, Budget(evaluations=600), RULED), portfolio.portfolio(posed, simulate, budget)
    assert schedules == ["critical-path", "critical-path", "given"] and budget.spent <= 601
    assert free.score < under.score and free.placement.schedule == "given" and free.planner.startswith("order from")
    assert simulate(posed, [free.placement])[0].feasible_ns == free.score.step_time_ns


def test_the_order_of_a_large_problem_is_searched_too(monkeypatch: pytest.MonkeyPatch):
    """Where a long op is started before what arrives soon after it (see test_reorder), and no other placement is tried."""
    ops = [op("feed", 1, 1), op("urgent", 1, 1), op("tail", 10), op("long", 5), op("short", 2)]
    posed, device = made(ops, [(0, 0, 1), (1, 0, 2)], gpus(link(0, 1), link(1, 0))), np.array([1, 0, 1, 0, 0], np.int32)
    monkeypatch.setattr(portfolio, "MAX_CHOICES", 7)
    for search in ("annealing", "ranked_climb"):
        monkeypatch.setattr(searches, search, lambda *rest, start, **more: start)
    for schedule, name, time_ns in (("critical-path", "mine", 17), ("given", "order from mine", 14)):
        found = portfolio.portfolio(
            posed, simulate, Budget(evaluations=600), Options(schedule=schedule, starts={"mine": lambda _: Placement(device)})
        )
        assert (found.planner, found.score.step_time_ns, found.placement.schedule) == (name, time_ns, schedule)
        assert np.array_equal(found.placement.device, device)


@pytest.mark.parametrize("schedule", ["critical-path", "given"])
def test_few_placements_are_all_tried_and_no_planner_is_asked(monkeypatch: pytest.MonkeyPatch, schedule):
    """They have half of the budget; where that is one evaluation less, planners are asked. CP-SAT can only find a better order."""
    posed, few, schedules = chains(2, 3, 2), 2**6, asked(monkeypatch)
    monkeypatch.setattr(planners, "planners", lambda *given: pytest.fail("asked"))
    budget = Budget(evaluations=2 * few)
    found = portfolio.portfolio(posed, simulate, budget, Options(schedule=schedule))
    assert found.score == score(posed, simulate(posed, [exhaustive(posed, simulate)])[0])
    assert "all 64 placements" in found.planner and few <= budget.spent <= 2 * few
    assert schedules == ([] if schedule == "critical-path" else [schedule])
    monkeypatch.undo()
    assert "all" not in portfolio.portfolio(posed, simulate, Budget(evaluations=2 * few - 1), Options(schedule=schedule)).planner


def test_placements_that_no_float_counts_are_infinitely_many_and_nothing_warns():
    with warnings.catch_warnings(action="error"):
        assert placements(chains(1100, 1, 2)) == float("inf")


def test_planners_and_repairs_are_asked_where_none_of_all_placements_fits(monkeypatch: pytest.MonkeyPatch):
    ops, asked = [op(f"o{i}", 100, persistent_bytes=60) for i in range(4)], list[str]()
    posed = problem(ComputationGraph.from_ops("large", ops, []), equal_gpus(2, memory_bytes=110))
    found = portfolio.portfolio(
        posed, simulate, Budget(evaluations=100), replace(RULED, progress=lambda planner, score: asked.append(planner))
    )
    assert (
        found.score.feasibility != FEASIBLE
        and asked[0] == "all 16 placements"
        and found.score == min(score(posed, each) for each in simulate(posed, list(every_placement(posed))))
    )


def test_where_the_order_is_free_planners_have_half_of_the_whole_budget_and_the_order_its_end(
    monkeypatch: pytest.MonkeyPatch,
):
    """Each planner makes 20 evaluations, and the first one another for its placement: a fifth would end after half of the budget."""
    posed, start, called, shares = chains(2, 2, 2), Placement(np.zeros(4, np.int32)), [], []

    def asked(problem, counted, seed, rule):
        def named(name):
            def plan(problem):
                counted(problem, [start] * 20, timeline=True)
                called.append(name)
                return start

            return plan

        return {name: named(name) for name in ("one", "two", "three", "four", "five", "six")}

    def searching(problem, evaluate, generator, *, start, budget, **more):
        shares.append((budget.evaluations, budget.spent))
        budget.pay(budget.evaluations - budget.spent)
        return start

    monkeypatch.setattr(planners, "planners", asked)
    for module, name in ((searches, "ranked_climb"), (searches, "annealing"), (reorder, "reorder")):
        monkeypatch.setattr(module, name, searching)
    for name, value in (("MAX_CHOICES", 7), ("ENUMERATED_OPS", 0), ("CLIMBED", 10)):
        monkeypatch.setattr(portfolio, name, value)
    portfolio.portfolio(posed, simulate, Budget(evaluations=200))
    assert called == ["one", "two", "three", "four"]
    assert shares == [(10, 0), (140, 4 * 20 + 1 + 10), (196, 140)]  # a climb, annealing, the order; the way home has the end


def test_time_for_exact_search_is_a_part_of_what_is_left():
    assert portfolio._exact_limit(Budget(evaluations=1), 3.0) == portfolio.Limit(3.0)
    limit = portfolio._exact_limit(Budget(seconds=4.0), 3.0)
    assert limit is not None and 1 <= limit.seconds <= 2 and not limit.deterministic
    assert portfolio._exact_limit(Budget(seconds=1.0), 3.0) is None


def spending(problem, budget: Budget, **more):
    """The winner, and how many evaluations it took."""
    return portfolio.portfolio(problem, simulate, budget, replace(RULED, **more)), budget.spent


@pytest.mark.parametrize("schedule", ["critical-path", "given"])
def test_everything_ends_once_a_step_reaches_the_bound(monkeypatch: pytest.MonkeyPatch, schedule):
    """Two chains on two devices: from both on one device a search finds the optimum soon, and nothing goes on after that."""
    monkeypatch.setattr(portfolio, "MAX_CHOICES", 7)
    posed, mine = chains(2, 2, 2), {"mine": lambda _: Placement(np.zeros(4, np.int32))}
    budget = portfolio.budget(posed, evaluations=5000)
    assert budget.bound_ns == 2000
    ended, spent = spending(posed, budget, schedule=schedule, starts=mine)
    whole, all_of_it = spending(posed, Budget(evaluations=300), schedule=schedule, starts=mine)
    assert ended.score == whole.score and ended.score.step_time_ns == 2000 and ended.planner == whole.planner
    assert spent < 100 and all_of_it >= 200


def test_planners_are_asked_no_longer_once_one_reaches_the_bound(monkeypatch: pytest.MonkeyPatch):
    posed, called = chains(2, 2, 2), []

    def named(name, device):
        return lambda problem: called.append(name) or Placement(np.array(device, np.int32))

    starts = {"one": named("one", [0, 0, 0, 0]), "two": named("two", [0, 1, 0, 1]), "three": named("three", [0, 0, 1, 1]),
              "four": named("four", [1, 1, 1, 1])}  # fmt: skip
    optimal = [name for name, device in zip(starts, ([0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]), strict=True)
               if simulate(posed, [Placement(np.array(device, np.int32))])[0].step_time_ns == 2000]  # fmt: skip
    budget = portfolio.budget(posed, seconds=600.0)
    found, spent = spending(posed, budget, starts=starts)
    assert [found.planner] == optimal[:1] == called[-1:] and spent == len(called) < 4


def test_a_bound_that_no_step_reaches_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(portfolio, "MAX_CHOICES", 7)
    posed = drawn(PUZZLE, 0)
    (bounded, spent), (free, as_much) = (spending(posed, Budget(evaluations=100, bound_ns=bound_ns)) for bound_ns in (1, None))
    assert (bounded.planner, bounded.score, spent) == (free.planner, free.score, as_much)
    assert np.array_equal(bounded.placement.device, free.placement.device)
