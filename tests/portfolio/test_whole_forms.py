"""Whole modules and stages in every form of a step: answers of `best` and rules keep to them and to the bound of every form."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from support.every_form import every_form
from support.graphs import equal_gpus
from support.layered import layered
from support.random_steps import random_step
from support.short_searches import shorten_searches
from support.slow import slow

import gnnplace as gp
from gnnplace.baselines.data_parallel.layer_row import layer_row
from gnnplace.baselines.data_parallel.layer_shares import SharesSearch
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import bound_of_forms
from gnnplace.bounds.shortage import shortage
from gnnplace.constraints import Constrained, Constraint, constrained
from gnnplace.costs.roofline import problem
from gnnplace.placement import Placement, check
from gnnplace.portfolio import comparison, forms
from gnnplace.portfolio.candidates import Candidate
from gnnplace.portfolio.portfolio import Options
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE
from gnnplace.simulator.simulator import simulate
from gnnplace.step_forms import freed, reformed
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.units import expand, units


def unequal(layers: int = 6, number: int = 4) -> Problem:
    """A card, and another that takes twice as long; the loss is a layer."""
    graph = layered(layers, time_ns=1_000_000)
    graph = replace(graph, layer=graph.layer.filled([graph.op_names.index("loss")], ["loss"]))
    posed = problem(Parallelism(number).of(graph), equal_gpus(2))
    return Problem(posed.graph, posed.cluster, posed.time_ns * np.array([1, 2]))


def parted(form: Problem, device: np.ndarray) -> set[str]:
    """Modules with two devices for a micro-batch or for the state of a replica, read from names alone."""
    graph, copies, found = form.graph, form.graph.copies, gp.modules(form.graph.original)
    devices = defaultdict(set)
    for op, name in enumerate(graph.op_names):
        module, stem = found.names[found.module[copies.source[op]]], graph.original.op_names[copies.source[op]]
        if name == f"{stem}@{copies.micro_batch[op]}" and graph.canonical_kind[op] != "input":
            devices[module, "micro-batch", int(copies.micro_batch[op])].add(int(device[op]))
        if name in (stem, f"{stem}@r{copies.replica[op]}") or copies.placed in ("together", "whole"):
            devices[module, "replica", int(copies.replica[op])].add(int(device[op]))
    return {module for (module, *_), some in devices.items() if len(some) > 1}


def answer(kept: Constrained, evaluations: int) -> Candidate:
    return comparison.best(kept.problem, Budget(evaluations=evaluations), Options(stages=kept.stages, forms=True))


def random_constrained(seed: int) -> Constrained | None:
    """A random step of two or three micro-batches on three cards, in whole modules; None if it is refused."""
    try:
        posed = problem(Parallelism(Random(f"whole {seed}").choice([2, 3])).of(random_step(seed)), equal_gpus(3))
        return constrained(posed, Constraint("module"))
    except ValueError:
        return None


@pytest.mark.parametrize("seeds", [(2, 3), slow(tuple(range(1, 60)))])
def test_answers_for_random_steps_have_whole_modules_and_are_not_below_the_bound(seeds, monkeypatch):
    shorten_searches(monkeypatch, SEARCH_EVALUATIONS=5)
    others = 0
    for kept in filter(None, map(random_constrained, seeds)):
        winner = answer(kept, 30)
        if winner.step_time_ns is not None:
            assert not parted(winner.form or kept.problem, winner.placement.device)
            assert winner.step_time_ns >= bound_of_forms(kept.problem) >= bound_of_forms(kept.whole)
            others += winner.form is not None
    assert others


@pytest.mark.parametrize("count", [8, slow(100)])
def test_whatever_is_placed_in_any_form_of_a_random_step_has_whole_modules(count):
    """Ops that no group holds together stand anywhere."""
    random, divided = Random("whole"), 0
    for seed in range(count):
        if (kept := random_constrained(seed)) is None:
            continue
        one = kept.problem.graph.original
        for form in random.sample(list(every_form(kept.problem.graph.micro_batches)), 4):
            posed = reformed(kept.problem, form.of(one))
            closure, generator = units(posed.graph, "ops"), np.random.default_rng(seed)
            device = expand(closure, generator.integers(3, size=closure.num_units, dtype=np.int32))
            assert not parted(posed, device) and gp.granularity(posed, Placement(device)) != "op"
            divided += len(set(device.tolist())) > 1
    assert divided


def test_best_has_whole_modules_in_a_form_that_is_faster_than_the_given_one(monkeypatch):
    shorten_searches(monkeypatch, SEARCH_EVALUATIONS=5)
    kept = constrained(unequal(3), Constraint("module"))
    winner, rules = answer(kept, 40), list(forms.all_rules(kept.problem, simulate))
    assert {"ddp", "fsdp", "layer-shares"} <= {rule.planner for rule in rules}
    assert winner.form is not None and winner.score < min(rule.score for rule in rules if rule.form is None)
    assert winner.score <= min(rule.score for rule in rules)
    assert not parted(winner.form, winner.placement.device) and winner.step_time_ns >= bound_of_forms(kept.problem)
    assert gp.granularity(winner.form, winner.placement) in ("module", "stage")


@pytest.mark.parametrize("name", forms.EVERY)
def test_rules_have_whole_modules_on_both_cards(name):
    posed = unequal(3)
    kept = constrained(posed, Constraint("module"))
    if (rule := forms._by_rule(name, kept.problem, simulate)) is not None:
        assert forms.breaks(kept.problem, rule) is None and not parted(rule.form, rule.placement.device)
        assert len(np.unique(rule.placement.device)) == (1 if name == "one-card" else 2)


def test_a_cut_divides_nothing_that_stays_whole():
    """The last four layers stay together, so they have the same shares."""
    kept = constrained(unequal(), Constraint(keep_whole=("layer.2+layer.3+layer.4+layer.5",)))
    row = layer_row(kept.problem)
    assert layer_row(unequal()).cuts() == [*range(8)] and {3, 4, 5}.isdisjoint(row.cuts())
    search, here = SharesSearch(kept.problem, simulate, row), np.tile([3, 1], (7, 1))
    here[4:] = [4, 0]
    assert search.proposal(here) is None
    here[2:4] = [4, 0]
    whole = search.proposal(here)
    assert whole is not None and check(whole.problem, whole.placement) is None


@pytest.mark.parametrize("cuts", [slow(None), 0])
def test_best_finds_stages_in_some_form(cuts, monkeypatch):
    shorten_searches(monkeypatch, SEARCH_EVALUATIONS=5)
    kept = constrained(unequal(3), Constraint("stage", max_cuts=cuts))
    winner = answer(kept, 20)
    assert forms.breaks(kept.problem, winner, kept.stages) is None and winner.step_time_ns >= bound_of_forms(kept.problem)
    assert gp.granularity(winner.form or kept.problem, winner.placement) == "stage"


@pytest.mark.parametrize("cuts", [None, 0])
def test_stages_of_every_replica_are_runs_and_other_rules_are_left_out(cuts):
    kept = constrained(unequal(), Constraint("stage", max_cuts=cuts))
    named = {rule.planner for rule in forms.all_rules(kept.problem, simulate, kept.stages)}
    assert "ddp" in named and {"fsdp", "interleaved-1f1b", "zb-v"}.isdisjoint(named)
    assert ("1f1b" in named) == (cuts is None)


def test_a_rule_that_has_no_stages_is_refused():
    with pytest.raises(ValueError, match="planner 'fsdp': does not keep to the constraint: a device has several runs of modules"):
        gp.place(unequal(), "fsdp", granularity="stage")
    kept = constrained(unequal(), Constraint("stage", max_cuts=0))
    pipeline = next(rule for rule in forms.by_pipelines(kept.problem, simulate) if rule.planner == "1f1b")
    assert forms.breaks(kept.problem, pipeline, kept.stages) == "2 stages, where at most 1 are allowed"


def test_a_pipeline_of_parts_that_are_larger_than_its_stages():
    """The last two of four layers stay together, so of four stages one has no op."""
    posed = problem(Parallelism(4).of(layered(4)), equal_gpus(4))
    kept = constrained(posed, Constraint("module", ("layer.2+layer.3",)))
    rules = list(forms.by_pipelines(kept.problem, simulate))
    assert "1f1b" in {rule.planner for rule in rules} and all(rule.score.feasibility == FEASIBLE for rule in rules)


def test_a_form_on_some_devices_is_one_of_the_whole_machine():
    given = gp.problem("squeezenet", cluster="mixed-4", micro_batches=4)
    only = ("gpu:1", "gpu:3")
    kept = constrained(given, Constraint("module", devices=only))
    rule = forms.by_rule("ddp", kept.problem, simulate)
    placed = kept.formed(rule.form)
    (whole,) = simulate(placed.whole, [placed.of_whole(rule.placement)])
    assert whole.step_time_ns == rule.step_time_ns and placed.whole.cluster is given.cluster
    plan = gp.place(given, "ddp", granularity="module", devices=only)
    assert plan.step.step_time_ns == rule.step_time_ns and plan.problem.graph.copies.replicas == 2
    assert {given.cluster.device_names[device] for device in plan.device.tolist()} == set(only)


def test_what_does_not_fit_with_copies_together_may_fit_in_another_form():
    """A device holds the state of a module, and another works for it."""
    graph = layered(1, weight=1000, activation=3000)
    cards = equal_gpus(2)
    devices = tuple(replace(device, memory_bytes=8000) for device in cards.devices)
    posed = problem(Parallelism(2).of(graph), replace(cards, devices=devices))
    constraint = Constraint("module")
    kept = constrained(posed, constraint)
    assert shortage(kept.problem) is not None and shortage(freed(kept.problem)) is None
    assert comparison.not_fitting(posed, kept.problem, constraint) is None
    stages = Constraint("stage")
    assert "no placement fits" in comparison.not_fitting(posed, constrained(posed, stages).problem, stages)
