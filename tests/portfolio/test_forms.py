"""Forms of a step of several micro-batches: `best` is no worse than what people do by hand, and says which form it placed."""

from __future__ import annotations

import pytest
from support.graphs import equal_gpus
from support.layered import layered

import gnnplace as gp
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import bound_name, bound_of_forms, bound_of_forms_name, lower_bound
from gnnplace.commands import candidate_table
from gnnplace.costs.roofline import problem
from gnnplace.fused import fused
from gnnplace.fusion.defaults import default
from gnnplace.portfolio import candidates, forms
from gnnplace.portfolio.comparison import best, compared
from gnnplace.portfolio.portfolio import Options
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches
from gnnplace.transformations.parallelism import Parallelism


def posed(layers: int = 3, number: int = 4, cards: int = 2, **columns):
    return problem(micro_batches(layered(layers, **columns), number), equal_gpus(cards))


@pytest.mark.slow
def test_best_is_no_worse_than_any_rule_and_knows_its_form():
    given = posed()
    rules = list(forms.all_rules(given, simulate))
    winner = best(given, Budget(evaluations=50), Options(forms=True))
    assert {"ddp", "fsdp", "gpipe", "1f1b", "zb-v"} <= {rule.planner for rule in rules}
    assert winner.score <= min(rule.score for rule in rules)
    assert winner.form is not None and winner.form.graph.copies.original is given.graph.copies.original
    (again,) = simulate(winner.form, [winner.placement])
    assert again.step_time_ns == winner.step_time_ns


@pytest.mark.slow
def test_without_leave_best_keeps_the_form():
    assert best(posed(), Budget(evaluations=20), Options()).form is None


@pytest.mark.slow
@pytest.mark.parametrize("form", [Parallelism(4, "free"), Parallelism(4, replicas=2), Parallelism(1)], ids=str)
def test_a_form_that_is_named_is_kept(form):
    given = problem(form.of(layered(2)), equal_gpus(2))
    assert not candidates.leaves_form(given)
    assert best(given, Budget(evaluations=20), Options(forms=True)).form is None


@pytest.mark.slow
def test_compare_has_a_row_for_each_rule_and_best_is_first():
    rows = compared(posed(), Budget(evaluations=30), Options(forms=True))
    assert rows[0].planner.startswith("best: ")
    assert {"ddp", "fsdp", "1f1b", "heft"} <= {row.planner for row in rows}


@pytest.mark.slow
def test_tables_at_one_home_are_searched_on():
    given = gp.problem("dlrm", cluster="k40-4", micro_batches=8)
    hybrid = forms.by_rule("hybrid", given, simulate)
    winner = best(given, Budget(evaluations=300), Options(forms=True))
    assert winner.step_time_ns < hybrid.step_time_ns


def test_a_plan_of_a_rule_says_what_was_placed():
    plan = gp.place(gp.problem("squeezenet", cluster="mixed-4", micro_batches=8), "ddp")
    assert plan.problem.graph.copies.shares == (1, 1, 3, 3)
    assert gp.simulate(plan.problem, plan).infeasible is None


@pytest.mark.parametrize(
    ("arguments", "planner", "line"),
    [
        ({}, "ddp", r"planner 'ddp': needs a step of several micro-batches \(--micro-batches 8\)"),
        ({"micro_batches": 4, "replicas": 2}, "fsdp", "planner 'fsdp': chooses replicas and copies itself; leave them open"),
        ({"micro_batches": 4}, "hybrid", "planner 'hybrid': squeezenet has no tables"),
        ({"micro_batches": 4}, "expert-parallel", "planner 'expert-parallel': squeezenet has no experts"),
    ],
)
def test_a_rule_that_does_not_apply_says_why(arguments, planner, line):
    with pytest.raises(ValueError, match=f"^{line}$"):
        gp.place(gp.problem("squeezenet", cluster="k40-2", **arguments), planner)


def test_candidates_of_several_forms_stand_beside_the_bound_of_every_form():
    given = posed(number=2)
    free = problem(micro_batches(layered(3), 2, "free"), equal_gpus(2))
    bound_ns, bound = candidates.bound_of_all(given)
    assert (bound_ns, bound) == (bound_of_forms(given), bound_of_forms_name(given)) == (bound_of_forms(free), bound_of_forms_name(free))
    assert candidates.bound_of_all(free) == (lower_bound(free), bound_name(free))
    rows = gp.table(given, [candidates.candidate(given, simulate, "gpu", gp.place(given, "gpu"))])
    assert rows.bound_ns[0] == bound_ns <= rows.step_time_ns[0]
    other = forms.by_rule("ddp", given, simulate)
    assert other.form is not None and lower_bound(other.form) > bound_ns
    row = other.row(given)
    assert row["room"] == 1 - bound_ns / row["step_time_ns"]


def test_fused_candidates_stand_beside_the_bound_of_the_form_that_is_given(capsys):
    given = posed(number=2)
    ops = fused(given, default(given))
    each = candidates.expanded(candidates.candidate(ops.problem, simulate, "gpu", gp.place(ops.problem, "gpu")), ops)
    assert each.row(given)["room"] == 1 - lower_bound(given, fusion=True) / each.step_time_ns
    candidate_table.print_table(given, [each])
    assert f"of every fusion in the given form ({bound_name(given, fusion=True)})" in capsys.readouterr().out
