"""Constraints against enumeration on tiny problems: what is whole, on which devices, in which stages; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from support.exhaustive import exhaustive
from support.random_problems import tiny_problems
from support.short_searches import shorten_searches
from support.slow import slow

import gnnplace as gp
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import lower_bound
from gnnplace.constraints import Constrained, Constraint, constrained
from gnnplace.graph import Categorical
from gnnplace.placement import Placement, check
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.registry import POLICIES
from gnnplace.policies.unit_placer.policy import UnitPlacerConfig
from gnnplace.portfolio import comparison, planners, portfolio
from gnnplace.portfolio.portfolio import every_placement
from gnnplace.portfolio.stages import nearest, planned_stages, search_stages
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, score
from gnnplace.simulator.simulator import simulate
from gnnplace.testing import built, evaluator
from gnnplace.training.update.rollout import greedy
from gnnplace.units.granularity import GRANULARITIES, granularity

NAMES = [name for name in planners.BASELINES if name not in planners.missing()]
COARSER = ("module", "stage")


def with_layers(problem: Problem, seed: int) -> Problem:
    """The problem whose ops are in one of four layers, or in none."""
    layers = np.random.default_rng(seed).integers(-1, 4, problem.num_ops).astype(np.int32)
    graph = replace(problem.graph, layer=Categorical(tuple("abcd"), layers))
    return Problem(graph, problem.cluster, problem.time_ns, problem.contended_ns)


@cache
def tiny(count: int = 12) -> list[Problem]:
    """Random problems with layers, all links, and devices that are allowed for whole modules."""
    posed = (with_layers(problem, seed) for seed, problem in tiny_problems(range(160), 700, 30, ops=3, linked=True))
    return [problem for problem in posed if under(problem, "module") is not None][:count]


def under(problem: Problem, name: str, **more) -> Constrained | None:
    try:
        return constrained(problem, Constraint(name, **more))
    except ValueError:
        return None


def every(problem: Problem, name: str) -> Iterator[Placement]:
    """Every legal placement that can be said at a granularity or a coarser one."""
    wanted = GRANULARITIES[GRANULARITIES.index(name) :]
    return (placement for placement in every_placement(problem, "critical-path") if granularity(problem, placement) in wanted)


def optimum(problem: Problem, name: str):
    return min(score(problem, result) for result in simulate(problem, list(every(problem, name))))


@pytest.mark.parametrize("count", [5, slow(12)])
def test_the_problem_of_whole_modules_has_just_the_placements_that_modules_say(count):
    for problem in tiny(count):
        kept = under(problem, "module")
        said = {kept.of_whole(placement).device.tobytes() for placement in every_placement(kept.problem, "critical-path")}
        assert said == {placement.device.tobytes() for placement in every(problem, "module")}
        found = score(problem, simulate(problem, [kept.of_whole(exhaustive(kept.problem, simulate))])[0])
        assert found == optimum(problem, "module") >= optimum(problem, "op")


@pytest.mark.parametrize("count", [6, slow(12)])
def test_bounds_hold_for_every_placement_under_the_constraint_and_are_no_lower_than_without(count):
    higher = 0
    for problem in tiny(count):
        for name in COARSER:
            if (kept := under(problem, name)) is None or (best := optimum(problem, name)).feasibility != FEASIBLE:
                continue
            assert lower_bound(problem) <= lower_bound(kept.problem) <= best.step_time_ns
            higher += lower_bound(kept.problem) > lower_bound(problem)
    assert higher


@pytest.mark.parametrize("name", [slow(name) if name in planners.SEARCHES else name for name in NAMES])
def test_every_planner_keeps_modules_whole(name, monkeypatch):
    shorten_searches(monkeypatch, SEARCH_EVALUATIONS=10)
    for problem in tiny(4):
        kept = under(problem, "module")
        if (plan := planners.planners(kept.problem, simulate, 0).get(name)) is not None:
            placement = kept.of_whole(plan(kept.problem))
            assert check(problem, placement) is None and granularity(problem, placement) in COARSER
            assert score(problem, simulate(problem, [placement])[0]) >= optimum(problem, "module") or placement.priority is not None


@pytest.mark.parametrize("config", [HierarchicalConfig(groups=3, width=16), UnitPlacerConfig(units="ops", width=8, rounds=2, hidden=8)])
@pytest.mark.parametrize("name", COARSER)
def test_policies_keep_to_it_too(config, name):
    assert type(config) in POLICIES.values()
    problem = gp.problem("two-tower-inference", "k40-2")
    policy = built(config, gp.constrained(problem, Constraint(name)).problem)
    placement = gp.place(problem, greedy(policy, evaluator(policy)), granularity=name)
    assert granularity(problem, placement) in GRANULARITIES[GRANULARITIES.index(name) :]


@pytest.mark.parametrize("cuts", [slow(None), slow(0), 1])
def test_stages_are_found_by_all_ways_and_are_never_better_than_the_best(cuts, monkeypatch):
    shorten_searches(monkeypatch)
    reached = tried = 0
    for problem in tiny(2 if cuts else 5):
        if (kept := under(problem, "stage", max_cuts=cuts)) is None:
            continue
        most = kept.stages.most
        every_stage = [one for one in every(problem, "stage") if len(np.unique(one.device)) <= most]
        best = min(score(problem, result) for result in simulate(problem, every_stage))
        start = planned_stages(kept.problem, simulate, stages=kept.stages)
        generator = np.random.default_rng(0)
        found = search_stages(kept.problem, simulate, generator, start=start, stages=kept.stages, budget=Budget(evaluations=100))
        rows = [start, found, *(row.placement for row in compared(kept))]
        for placement in map(kept.of_whole, rows):
            assert check(problem, placement) is None and granularity(problem, placement) == "stage"
            assert len(np.unique(placement.device)) <= most
            assert score(problem, simulate(problem, [placement])[0]) >= best
        tried, reached = tried + 1, reached + (score(problem, simulate(problem, [kept.of_whole(found)])[0]) == best)
    assert tried >= 2 and reached >= 0.9 * tried


def compared(kept: Constrained) -> list[comparison.Candidate]:
    return comparison.compared(kept.problem, Budget(evaluations=30), portfolio.Options(schedule="critical-path", stages=kept.stages))


@pytest.mark.parametrize("count", [6, slow(12)])
def test_the_nearest_stages_to_stages_are_these(count):
    for problem in tiny(count):
        if (kept := under(problem, "stage")) is not None:
            for placement in every(problem, "stage"):
                again = nearest(kept.problem, kept.stages, kept.within(placement))
                assert np.array_equal(kept.of_whole(again).device, placement.device)


@pytest.mark.parametrize("count", [5, slow(12)])
def test_nearest_stages_leave_most_work_in_place(count):
    for problem in tiny(count):
        if (kept := under(problem, "stage")) is None:
            continue
        work = problem.time_ns.min(axis=1)
        wanted = next(iter(every_placement(problem, "critical-path")))
        got = nearest(kept.problem, kept.stages, wanted)
        if (np.unique(got.device).tolist() == np.unique(wanted.device).tolist()) and granularity(problem, wanted) == "stage":
            assert work[got.device == wanted.device].sum() == work.sum()


def test_fewer_devices_cost_what_they_cost_in_the_whole_cluster():
    problem = gp.problem("dlrm", "mixed-4")
    for constraint in (
        Constraint(devices=("gpu:0", "gpu:3")),
        Constraint(accelerators_only=True),
        Constraint("module", devices=("gpu:2",)),
    ):
        kept = constrained(problem, constraint)
        placement = gp.place(kept.problem, "heft")
        (part,), (whole,) = simulate(kept.problem, [placement]), simulate(problem, [kept.of_whole(placement)])
        assert part.step_time_ns == whole.step_time_ns and part.transfers == whole.transfers
        names = {problem.cluster.device_names[device] for device in kept.of_whole(placement).device.tolist()}
        assert names <= set(constraint.devices or ("gpu:0", "gpu:1", "gpu:2", "gpu:3"))
        assert np.array_equal(kept.within(kept.of_whole(placement)).device, placement.device)


def test_a_name_keeps_whole_what_it_is_in_and_a_wildcard_each_that_it_means():
    problem = gp.problem("gpt2", "k40-2")
    found = gp.modules(problem.graph)
    kept = constrained(problem, Constraint("module", ("h.*",)))
    colocation = kept.problem.graph.colocation
    for block in range(12):
        inside = np.isin(found.module, [i for i, name in enumerate(found.names) if name.startswith(f"h.{block}.")])
        assert len(np.unique(colocation.index[inside])) == 1
    assert len(np.unique(colocation.index)) == 12 + 4  # wte, wpe, ln_f, lm_head
    one = constrained(problem, Constraint(keep_whole=("h.3", "ln_f")))
    assert len(np.unique(planners.planner("heft", simulate, 0)(one.problem).device[np.array([name.startswith("h.3.") for name in
        (found.names[module] for module in found.module)])])) == 1  # fmt: skip


def test_stages_do_not_cut_what_stays_whole():
    problem = gp.problem("gpt2", "k40-2")
    kept = constrained(problem, Constraint("stage", ("h.*",)))
    assert kept.stages.num_items == 16 and kept.stages.most == 3
    assert len(np.unique(gp.place(problem, "pipeline", granularity="stage", max_cuts=0).device)) == 1


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ({"granularity": "module", "max_cuts": 2}, r"max_cuts: 2 boundaries of stages, but the granularity is 'module'"),
        ({"granularity": "stage", "max_cuts": -1}, r"max_cuts: -1 is negative"),
        ({"devices": ["gpu:7"]}, r"devices: 'gpu:7' is no device of k40-2; nearest is 'gpu:1'"),
        ({"devices": ["cpu:0"], "accelerators_only": True}, r"accelerators_only: cpu:0 are no accelerators"),
        ({"keep_whole": ["top.9"]}, r"keep_whole: 'top.9' is no module; nearest is 'top.4'"),
    ],
)
def test_what_there_is_not_is_one_line(constraint, message):
    with pytest.raises(ValueError, match=message) as refused:
        gp.place(gp.problem("dlrm", "k40-2"), "gpu", **constraint)
    assert "\n" not in str(refused.value)


def test_ops_of_a_module_that_no_device_allows_together_are_named():
    ops = [gp.Op("here", "Op", (gp.Output(8),), allowed=("cpu",), layer="a", persistent_bytes=100),
           gp.Op("there", "Op", (gp.Output(8),), allowed=("gpu",), layer="a")]  # fmt: skip
    problem = gp.problem(gp.ComputationGraph.from_ops("torn", ops, [(0, 0, 1)]), "k40-2")
    assert check(problem, gp.place(problem, "heft")) is None
    with pytest.raises(
        ValueError, match=r"'a' has to be whole, but its ops are allowed by different devices \('here' by cpu:0; 'there' by"
    ):
        constrained(problem, Constraint("module"))
    with pytest.raises(ValueError, match=r"op 'here' is allowed on none of gpu:0, gpu:1"):
        constrained(problem, Constraint(accelerators_only=True))


def test_what_does_not_fit_says_what_would():
    ops = [gp.Op(f"w{i}", "Op", (gp.Output(8),), layer="a", persistent_bytes=10**10) for i in range(2)]
    problem = gp.problem(gp.ComputationGraph.from_ops("large", ops, []), "k40-2")
    constraint = Constraint("module", accelerators_only=True)
    proof = comparison.not_fitting(problem, constrained(problem, constraint).problem, constraint)
    assert proof.startswith("no placement fits: op ") and proof.endswith("nothing speaks against accelerators only")
    assert comparison.not_fitting(problem, problem, Constraint()) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", COARSER)
def test_best_under_a_constraint_takes_no_longer_than_the_planners_that_it_asks(name, monkeypatch):
    shorten_searches(monkeypatch, SEARCH_EVALUATIONS=10)
    problem = gp.problem("dlrm-inference", "k40-2")
    first, *rows = gp.compare(problem, evaluations=60, constraint=Constraint(name))
    assert first.planner.startswith("best: ") and all(first.step_time_ns <= row.step_time_ns for row in rows if row.step_time_ns)
    assert {granularity(problem, row.placement) for row in (first, *rows)} <= set(GRANULARITIES[GRANULARITIES.index(name) :])
    placed = gp.place(problem, granularity=name, evaluations=60)
    assert granularity(problem, placed) in GRANULARITIES[GRANULARITIES.index(name) :]


def test_the_budget_is_kept(monkeypatch):
    problem = gp.problem("dlrm", "mixed-4")
    for name in COARSER:
        kept, budget = constrained(problem, Constraint(name)), Budget(evaluations=200)
        portfolio.portfolio(kept.problem, partial(simulate), budget, portfolio.Options(stages=kept.stages))
        assert 100 < budget.spent < 220


def test_whole_modules_are_placed_where_no_stages_are_possible():
    """The first and the last module may stand on the CPU alone, the three between on two GPUs alone: no step reaches the bound."""
    kinds = {"a": "cpu", "b": "gpu", "c": "gpu", "d": "gpu", "e": "cpu"}
    ops = [
        gp.Op(name, "Op", (gp.Output(8),), flops=10**9, allowed=(kind,), layer=name, persistent_bytes=100) for name, kind in kinds.items()
    ]
    edges = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 0, 4), (2, 0, 4), (3, 0, 4)]
    problem = gp.problem(gp.ComputationGraph.from_ops("there and back", ops, edges), "k40-2")
    plan = gp.place(problem, evaluations=40, granularity="module")
    assert plan.step.step_time_ns > plan.bound_ns and gp.granularity(problem, plan) == "module"
    with pytest.raises(ValueError, match="no run of modules for each device is allowed"):
        gp.place(problem, evaluations=40, granularity="stage")


def test_a_sum_of_names_stays_on_one_device_together():
    problem = gp.problem("gpt2", cluster="k40-2")
    found = gp.modules(problem.graph)
    for seed in range(3):
        plan = gp.place(problem, "random", granularity="module", keep_whole=["wte+lm_head", "h.0+h.1.mlp"], seed=seed)
        of = {name: set(plan.device[found.module == number].tolist()) for number, name in enumerate(found.names)}
        assert of["wte"] == of["lm_head"] and len(of["wte"]) == 1
        assert len(set.union(*(devices for name, devices in of.items() if name.startswith(("h.0.", "h.1.mlp"))))) == 1
    with pytest.raises(ValueError, match="keep_whole: 'nothing' is no module"):
        gp.place(problem, "random", keep_whole=["wte+nothing"])
