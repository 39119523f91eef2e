"""The portfolio: in order, within its budget, never worse than any of its planners, and it says who won."""

import numpy as np
import pytest
from graphs import chains

from gnnplace.baselines.best import best, searched
from gnnplace.baselines.budget import Budget, Counted
from gnnplace.evaluate.simulator import simulate
from gnnplace.placement import Placement

POSED = chains(2, 3, 2)
DEVICES = {"one": [0] * 6, "cut": [0, 0, 1, 1, 1, 1], "split": [0, 0, 0, 1, 1, 1]}


def planners(*names, called=None):
    def planner(name):
        def plan(posed):
            if called is not None:
                called.append(name)
            return Placement(np.array(DEVICES[name], dtype=np.int32))

        return plan

    return {name: planner(name) for name in names}


@pytest.mark.parametrize("order", [("one", "cut", "split"), ("split", "one", "cut")])
def test_the_fastest_wins_by_its_name(order):
    found = best(POSED, simulate, planners(*order), Budget(evaluations=100))
    assert found.planner == "split" and found.placement.device.tolist() == DEVICES["split"] and found.standing == (0, 0, 3000)


def test_the_first_planner_is_asked_whatever_the_budget_and_no_other_after_half_of_it():
    called, budget = [], Budget(evaluations=4)
    found = best(POSED, Counted(simulate, budget), planners("one", "cut", "split", called=called), budget)
    assert called == ["one", "cut"] and found.planner == "cut" and budget.spent == 2
    budget.spent = 10
    assert best(POSED, simulate, planners("one", "split"), budget).planner == "one"


def test_searches_go_on_from_the_best_so_far_and_one_that_finds_nothing_does_not_win():
    starts, said = [], []

    def search(to):
        def found(posed, start, budget, tell):
            starts.append(start.device.tolist())
            return Placement(np.array(DEVICES[to], dtype=np.int32))

        return found

    searches = {"down": search("one"), "up": search("split"), "back": search("cut")}
    budget = Budget(evaluations=100)
    winner = best(POSED, simulate, planners("one", "cut"), budget, lambda *news: said.append(news))
    found = searched(POSED, simulate, winner, searches, budget, lambda *news: said.append(news))
    assert starts == [DEVICES["cut"], DEVICES["cut"], DEVICES["split"]] and found.planner == "up from cut"
    assert [name for name, _ in said] == ["one", "cut", "cut", "up from cut", "up from cut"]


def test_a_search_is_heard_when_it_finds_a_good_deal_more():
    said = []

    def search(posed, start, budget, tell):
        for found in ((1, 50, 9), (0, 0, 5990), (0, 0, 5950), (0, 0, 5900), (0, 0, 5000)):
            tell(found)
        return start

    winner = best(POSED, simulate, planners("one"), Budget(evaluations=9))
    searched(POSED, simulate, winner, {"search": search}, Budget(evaluations=9), lambda *news: said.append(news))
    assert [standing[2] for name, standing in said if name == "search from one"] == [5900, 5000]


def test_nobody_to_ask():
    with pytest.raises(ValueError, match="none to choose from"):
        best(POSED, simulate, {}, Budget(evaluations=1))
