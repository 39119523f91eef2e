"""Runs every planner on one problem, and the portfolio, which is never slower than any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from gnnplace.baselines.cp_sat.exact import Proved
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import bound_of_forms
from gnnplace.bounds.shortage import Shortage, shortage
from gnnplace.choices import BEST
from gnnplace.constraints import Constraint, Stages, constrained
from gnnplace.formats import strict_json
from gnnplace.placement import Schedule
from gnnplace.portfolio import forms, planners, portfolio
from gnnplace.portfolio.best_form import best_of_forms
from gnnplace.portfolio.candidates import BY_SCORE, Candidate, candidate, failed, leaves_form, ranked
from gnnplace.portfolio.halves import half_of
from gnnplace.portfolio.portfolio import USUAL, Options, planned
from gnnplace.portfolio.stages import staged
from gnnplace.problems import Problem
from gnnplace.result import Planner, known
from gnnplace.simulator.simulator import simulate
from gnnplace.step_forms import freed

Say = Callable[[Candidate], object]


def candidates(
    problem: Problem, named: Mapping[str, Planner], schedule: Schedule, say: Say = lambda candidate: None
) -> list[Candidate]:
    """The candidate of each planner under a schedule, the fastest feasible first.

    `say` is called with each candidate once it is evaluated. If the process of a planner dies, its candidate is
    infeasible and the other planners run.
    """
    proposed = []
    for name, planner in named.items():
        proposed.append(_proposed(problem, name, planner, schedule))
        say(proposed[-1])
    return ranked(proposed)


def _proposed(problem: Problem, name: str, planner: Planner, schedule: Schedule) -> Candidate:
    start = time.perf_counter_ns()
    try:
        placement = planner(problem)
    except ChildProcessError as error:
        return failed(problem, name, str(error), time.perf_counter_ns() - start)
    planning_ns, proved_ns = time.perf_counter_ns() - start, placement.bound_ns if isinstance(placement, Proved) else 0
    return replace(
        candidate(problem, simulate, name, planned(placement, schedule)), planning_ns=planning_ns, proved_ns=proved_ns
    )


def best(
    problem: Problem,
    budget: Budget,
    options: Options = USUAL,
    rules: Sequence[Candidate] | None = None,
    halve: bool = True,
) -> Candidate:
    """The winner of the portfolio, named `best: ` and the planner that proposed it.

    `rules` are the candidates of rules for other forms of the step, if these have run already. The budget is that
    of the search, beside their time. `halve`: search the half of a step of many micro-batches first (`halves`).
    """
    start = time.perf_counter_ns()
    if options.forms and leaves_form(problem):
        if rules is None:
            rules = list(forms.all_rules(problem, simulate, options.stages))
        winner = _best_of_forms(problem, budget, options, rules, halve)
        winner = replace(winner, rivals=tuple(rule for rule in rules if rule.planner not in forms.OURS))
        proved_ns = 0  # what is proved for a form says nothing of others
    else:
        winner = portfolio.portfolio(problem, simulate, budget, options)
        proved_ns = budget.bound_ns or 0
    planning_ns = time.perf_counter_ns() - start
    return replace(winner, planner=f"{BEST}: {winner.planner}", planning_ns=planning_ns, proved_ns=proved_ns)


def _best_of_forms(
    problem: Problem, budget: Budget, options: Options, rules: Sequence[Candidate], halve: bool
) -> Candidate:
    """The winner among forms. Binding stages are searched in the given form; other forms have those of rules."""
    bound_ns = bound_of_forms(problem)
    if options.stages is None or not options.stages.binding:
        half = half_of(problem, rules, simulate) if halve else None
        return best_of_forms(problem, simulate, budget.anew(bound_ns), options, rules, half)
    return min((portfolio.portfolio(problem, simulate, budget.anew(bound_ns), options), *rules), key=BY_SCORE)


def compared(
    problem: Problem,
    budget: Budget,
    options: Options,
    *,
    more: Mapping[str, Planner] | None = None,
    say: Say = lambda candidate: None,
) -> list[Candidate]:
    """The candidates of every planner, of `more`, and of the portfolio; the fastest feasible first.

    The portfolio starts from the other candidates, so it is never slower and plans nothing again. If stages are
    binding, each planner except searches proposes the stages nearest to its placement.
    """
    named = asked_planners(problem, options.seed, options.schedule, options.stages)
    named |= {name: staged(plan, options.stages) for name, plan in (more or {}).items()}
    proposals = candidates(problem, named, options.schedule, say)
    starts = {each.planner: known(each.placement) for each in proposals if not each.failed}
    rules = list[Candidate]()
    if options.forms and leaves_form(problem):
        rivals = (by(problem, simulate, options.stages) for by in (forms.by_rules, forms.by_ours))
        for rule in chain.from_iterable(rivals):
            rules.append(rule)
            say(rule)
    every = [best(problem, budget, replace(options, starts=starts), rules), *proposals, *rules]
    proved_ns = max(each.proved_ns for each in every)
    return ranked([replace(each, proved_ns=proved_ns) for each in every])


def asked_planners(problem: Problem, seed: int, schedule: Schedule, stages: Stages | None) -> dict[str, Planner]:
    """Every planner by name, with stages if there are any (`planners.with_stages`)."""
    return planners.with_stages(
        problem, stages, planners.planners(problem, simulate, seed, schedule), simulate, schedule
    )


def planner_named(name: str, problem: Problem, seed: int, schedule: Schedule, stages: Stages | None) -> Planner:
    """The planner of a user's name, with stages if there are any. Raises ValueError with the possible names."""
    planners.require(name, problem)
    named = asked_planners(problem, seed, schedule, stages)
    if name not in named:
        raise ValueError(strict_json.unknown("planner", name, (BEST, *named, *forms.EVERY)))
    return named[name]


def priced(restricted: Sequence[Candidate], free: Sequence[Candidate]) -> dict[str, int | None]:
    """The step time without the constraint for each planner of `restricted`; None if that is infeasible.

    `best` counts as one planner, whichever planner won for it.
    """
    times = {_first_name(each): each.step_time_ns for each in free}
    return {each.planner: times[_first_name(each)] for each in restricted if _first_name(each) in times}


def _first_name(proposal: Candidate) -> str:
    return proposal.planner.partition(": ")[0]


def not_fitting(problem: Problem, under: Problem, constraint: Constraint) -> str | None:
    """A proof that no placement fits `under` a constraint, in any form, and a finer constraint without such a proof.

    None if there is no proof.
    """
    if (proof := _shortage(under, constraint)) is None:
        return None
    for finer in (*constraint.finer(), Constraint()):
        if finer != constraint and _shortage(constrained(problem, finer).problem, finer) is None:
            return f"{proof}; nothing speaks against {str(finer) or 'a placement without constraint'}"
    return str(proof)


def _shortage(problem: Problem, constraint: Constraint) -> Shortage | None:
    """A proof for the given form and, if that is open, for the one whose copies stand freely, which stages never do."""
    proof = shortage(problem)
    if proof is None or constraint.granularity == "stage" or not leaves_form(problem):
        return proof
    return shortage(freed(problem))
