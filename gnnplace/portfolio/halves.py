"""The step of half as many micro-batches, which `best` searches before one of many.

A search gets further where a step is small. Its plan is lifted to all of them, so that a step of many is no worse for
each than a smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gnnplace.bounds.bounds import bound_of_forms
from gnnplace.portfolio import forms
from gnnplace.portfolio.candidates import BY_SCORE, Candidate, candidate, leaves_form
from gnnplace.portfolio.lifted import grown, lifted
from gnnplace.portfolio.planners import PIPELINES
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.step_forms import reformed
from gnnplace.transformations.parallelism import Parallelism

FEWEST = 8  # micro-batches that half of a step has
ASKED_AGAIN = 3  # rules


class Half(NamedTuple):
    """A step of half as many micro-batches, and its own half, if that has enough."""

    problem: Problem
    bound_ns: int  # on every form of it
    rules: list[Candidate]  # the candidates of those that are best for the whole
    half: Half | None


def half_of(problem: Problem, rules: Sequence[Candidate], evaluate: Evaluator) -> Half | None:
    """The half, for which the best rules are asked again; None for an odd number of micro-batches, or few."""
    copies = problem.graph.copies
    if copies is None or copies.micro_batches % 2 or copies.micro_batches < 2 * FEWEST:
        return None
    number = copies.micro_batches // 2
    half = reformed(problem, Parallelism(number, shared=copies.shared).of(copies.original))
    asks = {*forms.EVERY, *PIPELINES}
    names = [rule.planner for rule in sorted(rules, key=BY_SCORE) if rule.planner in asks]
    again = [forms.again(name, half, number, evaluate) for name in names[:ASKED_AGAIN]]
    fits = [each for each in again if each is not None and forms.breaks(half, each) is None]
    same = [replace(each, form=None) if each.planner in PIPELINES else each for each in fits]
    return Half(half, bound_of_forms(half), same, half_of(half, same, evaluate))


def lifted_to(problem: Problem, winner: Candidate, evaluate: Evaluator) -> Candidate:
    """A candidate that says its form, lifted to the micro-batches of a problem, a multiple of its own.

    The problem leaves its form open.
    """
    assert winner.form is not None
    number = winner.form.graph.micro_batches
    times = problem.graph.micro_batches // number
    form = problem if leaves_form(winner.form) else grown(winner.form, times)
    placement = lifted(winner.placement, winner.form, form)
    larger = candidate(form, evaluate, f"{winner.planner}, {number} micro-batches lifted", placement)
    return replace(larger, form=None if form is problem else form)
