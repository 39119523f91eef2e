"""Rations: what promises most is evaluated, nothing twice, nothing that can't be faster; and what a placement promises always holds."""

import numpy as np
import pytest
from support.graphs import chains
from support.random_problems import random_case

from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.rations import Rationed, promise, shares
from gnnplace.baselines.single import fastest
from gnnplace.placement import Placement
from gnnplace.problems import MAX_STEP_NS
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate

POSED = chains(2, 3, 2)  # steps of 6000 ns on one device, 3000 with a chain on each
ONE, OTHER, SPLIT, CUT = (Placement(np.array(row, np.int32)) for row in ([0] * 6, [1] * 6, [0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]))


def rationed(left):
    budget = Budget(evaluations=100)
    evaluate = Rationed(simulate, budget)
    evaluate.left = left
    return evaluate, budget


def times(results):
    return [each.step_time_ns for each in results]


def test_no_placement_is_evaluated_twice():
    evaluate, budget = rationed(None)
    assert times(evaluate(POSED, [ONE, SPLIT, ONE])) == [6000, 3000, 6000] and budget.spent == 2
    assert times(evaluate(POSED, [SPLIT])) == [3000] and budget.spent == 2
    assert times(evaluate(POSED, [Placement(SPLIT.device, "fifo")])) == [3000] and budget.spent == 3


def test_what_promises_most_is_evaluated_and_what_a_ration_leaves_out_can_not_be_chosen():
    evaluate, budget = rationed(1)
    results = evaluate(POSED, [ONE, OTHER, SPLIT, CUT])
    assert times(results) == [None, None, 3000, None] and (budget.spent, evaluate.left) == (1, 0)
    assert results[0].infeasible == "it was not tried"
    assert times(evaluate(POSED, [ONE, SPLIT])) == [None, 3000] and budget.spent == 1
    evaluate.left = 10
    assert fastest(POSED, [CUT, SPLIT], evaluate) is SPLIT


def test_what_can_not_be_faster_than_what_fits_is_not_evaluated_under_a_ration():
    evaluate, budget = rationed(10)
    assert times(evaluate(POSED, [CUT])) == [4000] and evaluate.left == 9
    assert times(evaluate(POSED, [ONE, SPLIT])) == [None, 3000] and budget.spent == 2
    evaluate.left = None
    assert times(evaluate(POSED, [ONE])) == [6000] and budget.spent == 3


def test_timelines_and_limits_are_evaluated_each_time():
    evaluate, budget = rationed(1)
    for _ in range(2):
        assert evaluate(POSED, [ONE], timeline=True)[0].timeline is not None
        assert times(evaluate(POSED, [ONE], limit_ns=10)) == [None]
    assert (budget.spent, evaluate.left) == (4, 1)


def test_a_ration_is_shared_and_what_one_leaves_goes_to_those_after_it():
    evaluate, _ = rationed(7)
    parts = []
    for _ in shares(evaluate, 3):
        parts.append(evaluate.left)
        evaluate.left -= min(evaluate.left, 1 if len(parts) == 1 else 9)
    assert parts == [3, 3, 3] and evaluate.left == 0
    assert [each is simulate for each in shares(simulate, 2)] == [True, True]
    evaluate.left = None
    assert [(each is evaluate, evaluate.left) for each in shares(evaluate, 2)] == [(True, None)] * 2


@pytest.mark.parametrize("part", range(4))
def test_no_step_is_shorter_and_no_overflow_smaller_than_a_placement_promises(part):
    told = 0
    for seed in range(part, 400, 4):
        case = random_case(seed)
        problem, placement = case.problem(), case.placement()
        promised, (result,) = promise(problem, placement), simulate(problem, [placement])
        if result.step_time_ns is None:
            assert promised.step_time_ns == MAX_STEP_NS or (problem.graph.edge_output < 0).any()
            continue
        assert promised.step_time_ns <= result.step_time_ns and promised.excess_bytes <= score(problem, result).excess_bytes
        told += promised.step_time_ns > result.step_time_ns / 2
    assert told > 50


def test_a_missing_link_promises_no_step_and_fused_ops_any():
    from support.by_hand import gpus, made, op

    posed = made([op("a", 1, 1), op("b", 1)], [(0, 0, 1)], gpus())
    assert promise(posed, Placement(np.array([0, 1], np.int32))).step_time_ns == MAX_STEP_NS
    fused = Placement(ONE.device, fusion=np.zeros(6, np.int32))
    assert (promise(POSED, ONE).step_time_ns, promise(POSED, fused).step_time_ns) == (6000, 0)
