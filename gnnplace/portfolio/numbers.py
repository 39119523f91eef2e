"""The number of micro-batches with the least time for each, and the plan of `best` for a step of so many.

All rules are asked for each number. `best` searches the smallest step whose rules are near the best, since a search
gets furthest where a step is small. Its plan is lifted to each larger number, and the rest of the budget goes to the
number that is then best. So a larger step is never worse for a micro-batch than the smaller one that was searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gnnplace.baselines.searching.budget import Budget
from gnnplace.portfolio import comparison, forms
from gnnplace.portfolio.alternatives import OF_BEST, by_time_of_each, formed, number_of
from gnnplace.portfolio.candidates import Candidate
from gnnplace.portfolio.halves import lifted_to
from gnnplace.portfolio.portfolio import Options
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE
from gnnplace.simulator.simulator import simulate

NEAR = 1.1  # times the least time for a micro-batch: rules of a smaller step that is searched first
FOR_SMALL = 0.5  # the share of the budget for it

Say = Callable[[int, float], object]  # a number of micro-batches, and the ns for each by the best rule that fits


def best_number(
    problems: Mapping[int, Problem],
    budget: Callable[[Problem], Budget],
    options: Options,
    say: Say = lambda number, each_ns: None,
) -> Candidate:
    """The winner over several numbers of micro-batches, with the form that was placed.

    Args:
        problems: the step of each number, which leaves its form open (`leaves_form`) unless it is one
        budget: the budget for a problem, which starts when it is called

    Its `rivals` are the rules, each at the number that suits it best.
    """
    rules = dict[int, list[Candidate]]()
    for number, problem in problems.items():
        rules[number] = [formed(rule, problem) for rule in forms.all_rules(problem, simulate)]
        if fits := [rule for rule in rules[number] if rule.score.feasibility == FEASIBLE]:
            say(number, min(map(by_time_of_each, fits))[-1])
    pool = [rule for some in rules.values() for rule in some]
    small = searched_first(rules)
    pool += _searched(small, problems, pool, budget(problems[small]).until(FOR_SMALL), options)
    goal = number_of(min(pool, key=by_time_of_each))
    pool += _searched(goal, problems, pool, budget(problems[goal]).until(1 - FOR_SMALL), options)
    winner = min(pool, key=by_time_of_each)
    return replace(winner, planner=f"{OF_BEST}{winner.planner}", rivals=tuple(_suited(rules)))


def _searched(
    number: int, problems: Mapping[int, Problem], pool: Sequence[Candidate], budget: Budget, options: Options
) -> list[Candidate]:
    """What `best` makes of the candidates for so many micro-batches, and the same lifted to larger numbers."""
    problem = problems[number]
    starts = [_given(each, problem) for each in pool if number_of(each) == number]
    best = comparison.best(problem, budget, options, starts, halve=False)  # a smaller step was searched already
    winner = replace(formed(best, problem), planner=best.planner.removeprefix(OF_BEST))
    return [winner, *_lifted(winner, {larger: each for larger, each in problems.items() if larger > number})]


def searched_first(rules: Mapping[int, Sequence[Candidate]]) -> int:
    """The least number of micro-batches whose rules are near the best; the largest number if nothing fits."""
    each = {
        number: min(by_time_of_each(rule)[-1] for rule in fits)
        for number, some in rules.items()
        if (fits := [rule for rule in some if rule.score.feasibility == FEASIBLE])
    }
    return min((number for number, ns in each.items() if ns <= NEAR * min(each.values())), default=max(rules))


def _suited(rules: Mapping[int, Sequence[Candidate]]) -> list[Candidate]:
    """Each rule at the number of micro-batches that suits it best."""
    every = [rule for some in rules.values() for rule in some]
    names = dict.fromkeys(rule.planner for rule in every)
    return [min((rule for rule in every if rule.planner == name), key=by_time_of_each) for name in names]


def _lifted(winner: Candidate, problems: Mapping[int, Problem]) -> list[Candidate]:
    """A plan, lifted to each larger number that is a multiple of its own."""
    number, fits = number_of(winner), winner.score.feasibility == FEASIBLE
    larger = [each for more, each in problems.items() if fits and number > 1 and more % number == 0]
    return [formed(lifted_to(each, winner, simulate), each) for each in larger]


def _given(each: Candidate, problem: Problem) -> Candidate:
    """The candidate as `best` for the problem expects it."""
    return replace(each, form=None if each.form is problem else each.form)
