"""The number of micro-batches: a larger step is no worse for each than a smaller one, and the rules of all numbers are known."""

from __future__ import annotations

import pytest
from support.graphs import equal_gpus
from support.layered import layered

from gnnplace.baselines.searching.budget import Budget
from gnnplace.costs.roofline import problem
from gnnplace.portfolio import comparison, forms, numbers
from gnnplace.portfolio.alternatives import alternatives, described
from gnnplace.portfolio.candidates import Candidate
from gnnplace.portfolio.portfolio import Options
from gnnplace.problems import Problem
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches

GRAPH = layered(3)


def posed(*counts: int) -> dict[int, Problem]:
    return {number: problem(micro_batches(GRAPH, number), equal_gpus(2)) for number in counts}


def each_ns(found: Candidate) -> float:
    return found.score.step_time_ns / found.form.graph.micro_batches


@pytest.fixture(scope="module")
def rules() -> dict[int, list[Candidate]]:
    """The rules that are quickly asked, in steps of 2, 4 and 8."""
    names = ("one-card", "ddp", "fsdp", "1f1b")
    return {number: [forms.again(name, of, number, simulate) for name in names] for number, of in posed(2, 4, 8).items()}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, rules: dict[int, list[Candidate]]) -> list[int]:
    """Rules that have run already, and a `best` that only takes the best of its starts; the numbers that it searches."""
    searched = list[int]()

    def best(problem: Problem, budget: Budget, options: Options, starts: list[Candidate], halve: bool) -> Candidate:
        assert not halve
        searched.append(problem.graph.micro_batches)
        winner = min(starts, key=lambda each: each.score)
        return Candidate(f"best: {winner.planner}", winner.placement, winner.result, winner.score, form=winner.form, rivals=tuple(starts))

    monkeypatch.setattr(comparison, "best", best)
    monkeypatch.setattr(forms, "all_rules", lambda problem, evaluate: rules[problem.graph.micro_batches])
    return searched


def test_the_least_time_for_each_wins_and_every_rule_is_known(quick: list[int], rules: dict[int, list[Candidate]]):
    said = dict[int, float]()
    found = numbers.best_number(posed(2, 4, 8), lambda of: Budget(evaluations=10), Options(), said.__setitem__)
    assert each_ns(found) <= min(each_ns(rule) for some in rules.values() for rule in some) == min(said.values())
    assert [*said] == [2, 4, 8] and found.planner.startswith("best: ") and quick[0] <= quick[1]
    assert sorted(rule.planner for rule in found.rivals) == ["1f1b", "ddp", "fsdp", "one-card"]
    for rule in found.rivals:
        assert each_ns(rule) == min(each_ns(same) for some in rules.values() for same in some if same.planner == rule.planner)
    (again,) = simulate(found.form, [found.placement])
    assert score(found.form, again) == found.score


def test_a_plan_of_a_small_step_is_lifted_to_a_larger_one(quick: list[int], rules: dict[int, list[Candidate]], monkeypatch):
    worse = {8: [rule for rule in rules[8] if rule.planner == "one-card"]}  # as a search that gets nowhere in a large step
    monkeypatch.setattr(forms, "all_rules", lambda problem, evaluate: (rules | worse)[problem.graph.micro_batches])
    found = numbers.best_number(posed(4, 8), lambda of: Budget(evaluations=10), Options())
    assert quick == [4, 8] and found.form.graph.micro_batches == 8 and "4 micro-batches lifted" in found.planner
    assert each_ns(found) < min(each_ns(rule) for rule in (*rules[4], *worse[8]))


def test_the_smallest_near_step_is_searched_first(rules: dict[int, list[Candidate]]):
    assert numbers.searched_first({8: rules[8]}) == 8
    far = {2: [rule for rule in rules[2] if rule.planner == "one-card"], 4: rules[4], 8: rules[8]}
    assert numbers.searched_first(far) == 4


def test_alternatives_are_sorted_by_the_time_of_each_and_the_winner_is_among_them(rules: dict[int, list[Candidate]]):
    ddp = next(rule for rule in rules[8] if rule.planner == "ddp")
    winner = Candidate("best: ddp", ddp.placement, ddp.result, ddp.score, form=ddp.form, rivals=(*rules[8],))
    among = alternatives(posed(8)[8], winner)
    assert [each.planner for each in among].count("best: ddp") == 1 and "ddp" not in [each.planner for each in among]
    assert [each_ns(each) for each in among] == sorted(each_ns(each) for each in among) and len(among) == 4
    (plan,) = [step for step in described(among, posed(8)[8].cluster).steps if step.plan]
    assert plan.planner == "ddp" and plan.micro_batches_on == {"gpu:0": 4, "gpu:1": 4}
    assert alternatives(posed(8)[8], ddp) == () and described((), posed(8)[8].cluster) is None


@pytest.mark.slow
def test_a_larger_limit_is_no_worse():
    few, many = (
        numbers.best_number(posed(*counts), lambda of: Budget(evaluations=60), Options(forms=True)) for counts in ((2, 4), (2, 4, 8))
    )
    assert each_ns(many) <= each_ns(few)
