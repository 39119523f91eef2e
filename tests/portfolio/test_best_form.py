"""`best` among forms: a race of starts, kept orders, and copies that stand freely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import equal_gpus
from support.layered import layered

from gnnplace.baselines.annealing import annealing
from gnnplace.baselines.ranked_climb import ranked_climb
from gnnplace.baselines.searching.budget import Budget
from gnnplace.costs.roofline import problem
from gnnplace.placement import check
from gnnplace.portfolio import forms
from gnnplace.portfolio.best_form import _Run
from gnnplace.portfolio.comparison import best
from gnnplace.portfolio.halves import half_of
from gnnplace.portfolio.loosened import loosened
from gnnplace.portfolio.portfolio import Options
from gnnplace.portfolio.racing import raced
from gnnplace.result import score
from gnnplace.schedules.start_order import start_order
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches


def posed(layers: int = 3, number: int = 4, cards: int = 2):
    return problem(micro_batches(layered(layers), number), equal_gpus(cards))


def test_the_start_goes_on_that_promises_the_best_end():
    start = forms.by_rule("ddp", posed(), simulate)
    room = {"1": 0, "2": 300, "3": 0, "4": 700, "5": 500}  # how far a search can get
    starts = [replace(start, planner=name, score=start.score._replace(step_time_ns=1000 + 10 * int(name))) for name in room]
    budget, spent = Budget(evaluations=400), dict.fromkeys(room, 0)

    def search(each, part):
        count = part.allows(400)
        part.pay(count)
        spent[each.planner] += count
        gain = room[each.planner] * (1 - 0.99 ** spent[each.planner])
        return replace(each, score=each.score._replace(step_time_ns=int(1000 + 10 * int(each.planner) - gain)))

    assert raced(starts, budget, search).planner == "4"
    assert sum(spent.values()) == 400 and spent["4"] > 250
    assert spent["1"] == spent["3"] == 20  # the first searches only: they gained nothing


def test_a_start_that_gains_nothing_more_leaves_the_budget_to_others():
    start = forms.by_rule("ddp", posed(), simulate)
    starts = [
        replace(start, planner=name, score=start.score._replace(step_time_ns=step)) for name, step in (("ahead", 1000), ("behind", 1010))
    ]
    spent = dict.fromkeys(("ahead", "behind"), 0)

    def search(each, part):
        count = part.allows(1000)
        part.pay(count)
        spent[each.planner] += count
        least = 990 if each.planner == "ahead" else 900
        return replace(each, score=each.score._replace(step_time_ns=max(least, each.score.step_time_ns - count)))

    assert raced(starts, Budget(evaluations=1000), search).planner == "behind"


def test_half_of_many_micro_batches_is_searched_first_and_lifted():
    given = posed(number=32)
    half = half_of(given, list(forms.by_rules(given, simulate)), simulate)
    assert half.problem.graph.micro_batches == 16 and half.half.problem.graph.micro_batches == 8 and half.half.half is None
    searching = _Run(given, simulate, Budget(evaluations=600), Options(forms=True))
    (winner,) = searching.lifted(half)
    assert winner.planner.endswith(", 16 micro-batches lifted") and winner.form.graph.micro_batches == 32
    assert winner.score == score(winner.form, simulate(winner.form, [winner.placement])[0])
    of_rules = min(rule.score.step_time_ns for rule in half.half.rules)
    assert winner.score.step_time_ns <= 4 * of_rules  # for each micro-batch as long at most
    assert 200 <= searching._budget.spent <= 260  # two fifths
    assert half_of(posed(number=8), [], simulate) is half_of(posed(number=17), [], simulate) is None


def test_rules_for_half_are_asked_before_the_budget_begins(monkeypatch: pytest.MonkeyPatch):
    given, seconds = posed(number=16), [0.0]
    rules = [forms.by_rule("ddp", given, simulate)]

    def searched(passes: float):
        def asked(*_):
            seconds[0] += passes

        monkeypatch.setattr(forms, "again", asked)
        return best(given, Budget(evaluations=200, seconds=10.0, clock=lambda: seconds[0]), Options(forms=True), rules)

    assert searched(100.0).score == searched(0.0).score < rules[0].score and seconds[0] == 100


def test_searches_keep_the_order_of_a_start():
    given = posed()
    start = forms.by_pipelines(given, simulate)
    pipeline = next(each for each in start if each.planner == "1f1b").placement
    for search in (annealing, ranked_climb):
        placed = search(given, simulate, np.random.default_rng(0), start=pipeline, budget=Budget(evaluations=40), schedule="in-order")
        assert placed.schedule == "in-order" and placed.priority.tolist() == pipeline.priority.tolist()


def test_the_order_in_which_ops_started_gives_the_same_step():
    given = posed()
    rule = forms.by_rule("fsdp", given, simulate)
    (step,) = simulate(rule.form, [rule.placement], timeline=True)
    again = replace(rule.placement, schedule="given", priority=start_order(rule.form.graph, step.timeline))
    assert simulate(rule.form, [again])[0].step_time_ns == step.step_time_ns


def test_a_start_where_gradients_wait_for_links_has_a_breadth_first_order():
    given = problem(micro_batches(layered(3, weight=2**20), 4), equal_gpus(2, bandwidth=3 * 10**10))
    rule = forms.by_rule("ddp", given, simulate)
    search = _Run(given, simulate, Budget(evaluations=100), Options(forms=True))
    steps = [simulate(rule.form, [order])[0].step_time_ns for order in search._orders(rule.form, rule.placement)]
    assert len(steps) == 3 and steps[1] < steps[0] == rule.result.step_time_ns  # the last one by a rule


def test_anchored_replicas_take_the_same_step_and_a_copy_of_theirs_may_move():
    given = posed(cards=2)
    rule = forms.by_rule("ddp", given, simulate)
    anchored = loosened(rule.form, rule.placement, simulate, "anchored")
    graph = anchored.problem.graph
    assert graph.op_names == rule.form.graph.op_names and graph.copies.placed == "anchored"
    (step,) = simulate(anchored.problem, [anchored.placement])
    assert step.step_time_ns == rule.result.step_time_ns
    device = anchored.placement.device.copy()
    device[graph.op_names.index("f1@0")] ^= 1
    assert check(anchored.problem, replace(anchored.placement, device=device)) is None
    device = device.copy()
    device[graph.op_names.index("w1@r0")] ^= 1
    assert check(anchored.problem, replace(anchored.placement, device=device)) is not None


def test_loosened_replicas_compute_what_whole_ones_do():
    given = posed(cards=2)
    rule = forms.by_rule("ddp", given, simulate)
    free = loosened(rule.form, rule.placement, simulate)
    assert free.problem.graph.copies.placed == "free" and free.problem.graph.copies.shares == rule.form.graph.copies.shares
    (step,) = simulate(free.problem, [free.placement])
    assert step.infeasible is None
    device = dict(zip(rule.form.graph.op_names, rule.placement.device.tolist(), strict=True))
    both = [
        (device[name], at) for name, at in zip(free.problem.graph.op_names, free.placement.device.tolist(), strict=True) if name in device
    ]
    assert len(both) > 50 and all(first == second for first, second in both)
