"""The portfolio: in order, within its budget, never worse than any of its planners, and it says who won."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op

from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.baselines.single import fastest
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.portfolio.candidates import BY_SCORE, candidate
from gnnplace.portfolio.rounds import best, improvements, searched, searched_from_few, with_repairs
from gnnplace.result import FEASIBLE, OVERFLOWS, Score
from gnnplace.simulator.simulator import simulate

POSED = chains(2, 3, 2)
DEVICES = {"one": [0] * 6, "cut": [0, 0, 1, 1, 1, 1], "split": [0, 0, 0, 1, 1, 1]}


def ask(planners, budget, *tell):
    """The winners among planners that make no evaluations of their own."""
    return best(POSED, Rationed(simulate, budget), planners, budget, *tell)


def variants(name, rows, called):
    """A planner that evaluates placements and takes the fastest."""

    def plan(posed, evaluate):
        called.append(name)
        return fastest(posed, [Placement(np.array(row, np.int32)) for row in rows], evaluate)

    return plan


def planners(*names, called=None):
    def planner(name):
        def plan(posed):
            if called is not None:
                called.append(name)
            return Placement(np.array(DEVICES[name], dtype=np.int32))

        return plan

    return {name: planner(name) for name in names}


@pytest.mark.parametrize("order", [("one", "cut", "split"), ("split", "one", "cut")])
def test_the_fastest_comes_first_by_its_name_and_what_is_surely_slower_is_left_out(order):
    budget = Budget(evaluations=100)
    found = ask(planners(*order), budget)
    assert [winner.planner for winner in found] == (["split", "cut", "one"] if order[0] == "one" else ["split"])
    assert budget.spent == len(found)
    assert found[0].placement.device.tolist() == DEVICES["split"] and found[0].score == (0, 0, 3000)


def test_a_placement_that_two_propose_is_the_first_ones():
    twice = planners("one", "split") | {"again": planners("split")["split"]}
    assert [winner.planner for winner in ask(twice, Budget(evaluations=100))] == ["split", "one"]


def test_the_first_planner_is_asked_whatever_the_budget_and_no_other_after_half_of_it():
    called, budget = [], Budget(evaluations=4)
    found = ask(planners("one", "cut", "split", called=called), budget)
    assert called == ["one", "cut"] and found[0].planner == "cut" and budget.spent == 2
    budget.spent = 10
    assert [winner.planner for winner in ask(planners("one", "split"), budget)] == ["one"]


def test_every_planner_is_asked_though_the_first_would_use_all_evaluations():
    """Of four planners with eleven variants each, whose steps differ, the last one has the fastest."""
    rows, called, budget = [list(row) for row in product((0, 1), repeat=6)], [], Budget(evaluations=40)
    evaluate = Rationed(simulate, budget)
    asked = {
        f"p{i}": partial(
            variants(f"p{i}", [*rows[10 * i + 1 : 10 * i + 11], *([DEVICES["split"]] if i == 3 else [])], called), evaluate=evaluate
        )
        for i in range(4)
    }
    found = best(POSED, evaluate, asked, budget)
    assert called == ["p0", "p1", "p2", "p3"] and found[0].score.step_time_ns == 3000 and budget.spent <= 20
    spent, called[:] = budget.spent, []
    best(POSED, evaluate, asked, Budget(seconds=100.0))
    assert budget.spent > spent and evaluate.left is None and called[:1] == ["p0"]


def test_a_search_that_finds_nothing_better_does_not_win_and_none_starts_without_a_budget():
    said = []

    def search(to):
        return lambda posed, start, budget, tell: Placement(np.array(DEVICES[to], dtype=np.int32))

    def tell(*news):
        said.append(news)

    (winner, *_) = ask(planners("one", "cut"), Budget(evaluations=100), tell)
    up = searched(POSED, simulate, winner, "up", search("split"), Budget(evaluations=100), tell)
    assert (up.planner, up.score.step_time_ns) == ("up from cut", 3000)
    assert searched(POSED, simulate, up, "down", search("one"), Budget(evaluations=100), tell) is up
    over = Budget(evaluations=1)
    over.spent = 1
    assert searched(POSED, simulate, winner, "up", search("split"), over, tell) is winner
    assert searched(POSED, simulate, up, "up", search("split"), Budget(evaluations=1)).planner == "up from cut"
    assert [name for name, _ in said] == ["one", "cut", "up from cut", "up from cut"]


def test_a_tenth_of_a_search_goes_to_the_best_few_in_equal_parts_and_the_rest_to_what_came_furthest():
    """The search gets nowhere but from `cut`, the third of four, from which it gets to `split`; the fifth is not asked."""
    rows = [[0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 0, 0], [0, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]]
    proposed = {f"p{i}": lambda _, row=row: Placement(np.array(row, dtype=np.int32)) for i, row in enumerate(rows)}
    winners, asked = [candidate(POSED, simulate, name, plan(POSED)) for name, plan in proposed.items()], []
    winners.sort(key=BY_SCORE)
    third = winners[2].placement.device.tolist()

    def search(posed, start, budget, tell):
        asked.append((start.device.tolist(), budget.evaluations - budget.spent))
        budget.pay(budget.evaluations - budget.spent)
        return Placement(np.array(DEVICES["split"], dtype=np.int32)) if start.device.tolist() == third else start

    budget = Budget(evaluations=500)
    budget.spent = 20
    found = searched_from_few(POSED, simulate, winners, ("search", search), ("search", search), budget)
    starts = [winner.placement.device.tolist() for winner in winners[:4]]
    brief = [(start, left) for start, left in zip(starts, (12, 12, 12, 11), strict=True)]  # the third's result is evaluated, too
    assert asked == [*brief, (DEVICES["split"], 432)] and budget.spent == 500
    assert found.planner == f"search from {winners[2].planner}" and found.score == (0, 0, 3000)


@pytest.mark.parametrize(("evaluations", "few"), [(99, 1), (100, 2), (199, 3), (200, 4), (1000, 4)])
def test_brief_searches_are_fewer_where_they_could_evaluate_no_round_of_moves(evaluations, few):
    asked = []

    def search(posed, start, budget, tell):
        asked.append(budget.evaluations)
        return start

    winners = [candidate(POSED, simulate, name, Placement(np.array(row, np.int32))) for name, row in DEVICES.items()] * 2
    searched_from_few(POSED, simulate, winners, ("brief", search), ("long", search), Budget(evaluations=evaluations))
    assert len(asked) == (few + 1 if few > 1 else 1) and min(asked) >= 5 and asked[-1] == evaluations


def test_one_start_gets_all_of_a_search():
    asked = []

    def search(posed, start, budget, tell):
        asked.append(budget.evaluations)
        return start

    winners = ask(planners("one"), Budget(evaluations=100))
    assert searched_from_few(POSED, simulate, winners, ("search", search), ("search", search), Budget(evaluations=100)) is winners[
        0
    ] and asked == [100]


def test_a_search_is_heard_when_it_finds_a_good_deal_more():
    said = []

    def search(posed, start, budget, tell):
        for found in ((1, 50, 9), (0, 0, 5990), (0, 0, 5950), (0, 0, 5900), (0, 0, 5000)):
            tell(Score(*found))
        return start

    (winner,) = ask(planners("one"), Budget(evaluations=9))
    searched(POSED, simulate, winner, "search", search, Budget(evaluations=9), lambda *news: said.append(news))
    assert [score.step_time_ns for name, score in said if name == "search from one"] == [5900, 5000]


def test_only_what_is_better_than_all_before_is_news():
    said = []
    tell = improvements(lambda planner, score: said.append(planner))
    for planner, found in {"over": (1, 0, 5), "fits": (0, 0, 9), "worse": (0, 0, 10), "equal": (0, 0, 9), "better": (0, 0, 8)}.items():
        tell(planner, Score(*found))
    assert said == ["over", "fits", "better"]


def test_nobody_to_ask():
    with pytest.raises(ValueError, match="at least one is needed"):
        ask({}, Budget(evaluations=1))


TIGHT = problem(ComputationGraph.from_ops("tight", [op(f"w{i}", 10 + i, persistent_bytes=30) for i in range(4)], []),
                equal_gpus(2, memory_bytes=70))  # fmt: skip


def winner(name, *device):
    return candidate(TIGHT, simulate, name, Placement(np.array(device, dtype=np.int32)))


class Repair:
    """A repair that leads to these devices, and is hastened to those; each takes ten evaluations."""

    def __init__(self, name, called, budget, to, faster=None):
        self.name, self.called, self.budget, self.to, self.faster = name, called, budget, to, faster

    def relieved(self, placement):
        return self._made("relieves", placement, self.to)

    def hastened(self, placement):
        return self._made("hastens", placement, self.faster)

    def _made(self, what, placement, device):
        self.called.append(f"{self.name} {what} {placement.device.tolist()}")
        self.budget.spent += 10
        return placement if device is None else Placement(np.array(device, dtype=np.int32))


def test_the_fastest_is_repaired_in_every_way_and_the_others_in_the_best_one():
    called, said, budget = [], [], Budget(evaluations=1000)
    ways = [Repair("bad", called, budget, [0, 0, 0, 0]), Repair("good", called, budget, [0, 0, 1, 1], [0, 1, 1, 0])]
    asked = [winner("slow", 0, 0, 0, 0), winner("quick", 0, 0, 0, 1), winner("fits", 1, 1, 0, 0)]
    assert [each.score.step_time_ns for each in asked] == [46, 33, 25]
    found = with_repairs(TIGHT, simulate, asked[:2], ways, budget, lambda *news: said.append(news))
    assert called == ["bad relieves [0, 0, 0, 1]", "good relieves [0, 0, 0, 1]", "good hastens [0, 0, 1, 1]"]  # what fits is hastened
    assert found[0].planner == "repaired quick" and found[0].score == (FEASIBLE, 0, 23) and budget.spent == 33
    assert [name for name, _ in said] == ["repaired quick"] * 3


def test_what_is_fast_and_has_little_to_move_is_repaired_first():
    """`quick` is faster by 10 and 13 have to move, on a link of so many bytes a second that they take 26: then `slow` is first."""
    called, budget = [], Budget(evaluations=1000)
    asked = [winner("quick", 0, 0, 0, 1), winner("slow", 1, 1, 1, 0)]
    scores = [Score(OVERFLOWS, 13, 30), Score(OVERFLOWS, 1, 40)]
    for bytes_per_s, first in ((5 * 10**8, [1, 1, 1, 0]), (5 * 10**9, [0, 0, 0, 1])):
        links = tuple(replace(link, bandwidth_bytes_per_s=bytes_per_s) for link in TIGHT.cluster.links)
        posed = problem(TIGHT.graph, replace(TIGHT.cluster, links=links))
        overflowing = [replace(each, score=score) for each, score in zip(asked, scores, strict=True)]
        with_repairs(posed, simulate, overflowing, [Repair("any", called, budget, None)], budget)
        assert called[0] == f"any relieves {first}"
        called.clear()


def test_what_is_no_faster_than_what_fits_is_not_repaired():
    called, budget = [], Budget(evaluations=1000)
    asked = [winner("slow", 0, 0, 0, 0), winner("quick", 0, 0, 0, 1), winner("fits", 1, 1, 0, 0)]
    assert with_repairs(TIGHT, simulate, asked, [Repair("any", called, budget, [0, 0, 1, 1])], budget)[0].planner == "fits"
    assert not called


def test_the_first_repair_that_fits_is_hastened_before_others_begin_and_no_placement_twice():
    called, budget = [], Budget(evaluations=1000)
    ways = [Repair(name, called, budget, to) for name, to in (("bad", [0, 0, 0, 0]), ("one", [0, 0, 1, 1]), ("two", [0, 0, 1, 1]))]
    found = with_repairs(TIGHT, simulate, [winner("quick", 0, 0, 0, 1)], ways, budget)
    assert [each.rsplit(" [")[0] for each in called] == ["bad relieves", "one relieves", "one hastens", "two relieves"]
    assert [each.placement.device.tolist() for each in found] == [[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]]


def test_few_repairs_begin_late_but_the_first_one_does():
    called, budget = [], Budget(evaluations=100)
    ways = [Repair(name, called, budget, [0, 0, 0, 0]) for name in ("one", "two", "three")]
    asked = [winner("quick", 0, 0, 0, 1), winner("slow", 0, 0, 0, 0)]
    budget.spent = 55
    with_repairs(TIGHT, simulate, asked, ways, budget)
    assert called == ["one relieves [0, 0, 0, 1]", "one relieves [0, 0, 0, 0]"]
    called.clear()
    budget.spent = 80
    with_repairs(TIGHT, simulate, asked, ways, budget)
    assert called == ["one relieves [0, 0, 0, 1]"]
    called.clear()
    budget.spent = 100
    with_repairs(TIGHT, simulate, asked, ways, budget)
    assert not called
