"""Search over priorities: it finds orders that no rule finds, keeps the devices and its budget, and is never worse."""

import itertools

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op
from support.graphs import chains
from support.random_problems import random_case

from gnnplace.baselines.reorder import reorder, spaced
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import RULES, Placement, missing_link
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate


def reordered(posed, start, evaluations=200, seed=0):
    return reorder(posed, simulate, np.random.default_rng(seed), start=start, budget=Budget(evaluations=evaluations))


def time_of(posed, placement):
    return simulate(posed, [placement])[0].step_time_ns


def best_order(posed, device):
    rows = [Placement(device, "given", np.array(row)) for row in itertools.permutations(range(posed.num_ops))]
    return min(result.step_time_ns for result in simulate(posed, rows))


def late_guest():
    """A long op that is started first makes what arrives soon after wait; a short one in between would not."""
    ops = [op("feed", 1, 1), op("urgent", 1, 1), op("tail", 10), op("long", 5), op("short", 2)]
    return made(ops, [(0, 0, 1), (1, 0, 2)], gpus(link(0, 1), link(1, 0))), np.array([1, 0, 1, 0, 0], np.int32)


def test_an_order_that_no_rule_finds():
    posed, device = late_guest()
    rules = [time_of(posed, Placement(device, rule)) for rule in ("critical-path", "memory", "fifo")]
    assert rules == [5 + 1 + 1 + 10, 7 + 1 + 1 + 10, 7 + 1 + 1 + 10] and best_order(posed, device) == 2 + 1 + 1 + 10
    found = reordered(posed, Placement(device))
    assert time_of(posed, found) == 14 and found.schedule == "given" and np.array_equal(found.device, device)


@pytest.mark.parametrize("seed", range(25))
def test_never_worse_than_any_rule_and_often_the_best_order(seed):
    case = random_case(seed)
    posed, device = case.problem(), np.array(case.device, np.int32)
    if missing_link(posed, device) is not None:
        return
    for rule in ("fifo", "critical-path"):
        start = Placement(device, rule)
        found = reordered(posed, start, 20)
        scores = [score(posed, result) for result in simulate(posed, [found, *(Placement(device, each) for each in RULES)])]
        assert scores[0] <= min(scores[1:])
        assert found is start or scores[0] < scores[1 + RULES.index(rule)]


def scattered(seed):
    """Six ops of random times, edges and devices."""
    random = np.random.default_rng(seed)
    ops = [op(f"o{i}", int(random.integers(1, 9)), int(random.integers(1, 6))) for i in range(6)]
    edges = [(i, 0, j) for i in range(6) for j in range(i + 1, 6) if random.random() < 0.3]
    links = [link(src, dst) for src in range(2) for dst in range(2) if src != dst]
    return made(ops, edges, gpus(*links)), random.integers(2, size=6).astype(np.int32)


@pytest.mark.parametrize("seed", [*range(6), 14, 55, 56])
def test_best_orders_of_small_problems_are_found(seed):
    """All orders of all ops are tried beside it; no rule has the best one in the last three problems."""
    posed, device = scattered(seed)
    least = min(time_of(posed, Placement(device, rule)) for rule in RULES)
    found = time_of(posed, reordered(posed, Placement(device), 60))
    assert found == best_order(posed, device) and (found < least) == (seed > 5)


@pytest.mark.parametrize("evaluations", [1, 3, 6, 50])
def test_it_keeps_to_its_budget(evaluations):
    posed, budget, asked = chains(3, 8, 2), Budget(evaluations=evaluations), []

    def counting(posed, placements, *, timeline=False, limit_ns=None):
        asked.extend(placements)
        return simulate(posed, placements, timeline=timeline, limit_ns=limit_ns)

    start = Placement(np.arange(24, dtype=np.int32) % 2)
    reorder(posed, counting, np.random.default_rng(0), start=start, budget=budget)
    assert len(asked) == budget.spent <= evaluations


def test_it_ends_where_no_order_can_help():
    posed, budget = chains(1, 8, 1), Budget(evaluations=10**6)
    start = Placement(np.zeros(8, np.int32))
    assert reorder(posed, simulate, np.random.default_rng(0), start=start, budget=budget) is start and budget.spent == len(RULES)


def test_the_same_generator_gives_the_same_order():
    posed, device = late_guest()
    first, second = (reordered(posed, Placement(device), 30, 3) for _ in range(2))
    assert np.array_equal(first.priority, second.priority)


def test_given_priorities_are_where_it_starts():
    posed, device = late_guest()
    start = Placement(device, "given", np.array([0, 5, 5, 1, 2]))
    assert time_of(posed, start) == 14 and reordered(posed, start) is start


def test_spacing_keeps_the_order_and_ties_of_any_priorities():
    extreme = np.array([2**63 - 1, -(2**63), 0, 0])
    assert np.argsort(spaced(extreme), kind="stable").tolist() == [1, 2, 3, 0] and spaced(extreme)[2] == spaced(extreme)[3]
