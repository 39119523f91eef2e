"""What every baseline promises. A new baseline is a line of `planners.BASELINES` and no edit here."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from support.exhaustive import exhaustive
from support.graphs import chains, equal_gpus, op
from support.random_problems import tiny_problems
from support.short_searches import shorten_searches
from support.slow import slow

from gnnplace.baselines.single import fastest
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op
from gnnplace.placement import RULES, Placement, Schedule, check
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner, score
from gnnplace.simulator.simulator import simulate

NAMES = [name for name in planners.BASELINES if name not in planners.missing()]


def cpu_and_gpus(gpus: int) -> Cluster:
    devices = [Device("cpu:0", "cpu", 10**9, 10**9, 10**9), *(Device(f"gpu:{i}", "gpu", 10**9, 10**12, 10**12) for i in range(gpus))]
    links = [Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b]
    return Cluster(f"cpu-and-{gpus}", tuple(devices), tuple(links))


@cache
def tiny(count: int) -> list[tuple[int, Problem]]:
    """Random problems with every feature, of few placements, with all links."""
    return tiny_problems(range(120), 1000, count, linked=True)


@cache
def optimum(seed: int) -> tuple[int, int, int]:
    posed = dict(tiny(8))[seed]
    return score(posed, simulate(posed, [exhaustive(posed, simulate)])[0])


def best_of_few(problem: Problem, evaluate: Evaluator, schedule: Schedule = "critical-path") -> Placement:
    named = planners.planners(problem, evaluate, 0, schedule)
    return fastest(problem, [plan(problem) for name, plan in named.items() if name in (*planners.SINGLE, "heft")], evaluate)


@pytest.fixture(params=["short", slow("whole")])
def searches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How long planners search: little, on few problems and from few heuristics, or as they do for users, on many."""
    if request.param == "short":
        shorten_searches(monkeypatch, SEARCH_EVALUATIONS=20, LEAST_EVALUATIONS=20, MOST_EVALUATIONS=40)
        monkeypatch.setattr(planners, "best_heuristic", best_of_few)
    return request.param


@pytest.mark.parametrize("name", NAMES)
def test_valid_and_never_better_than_exhaustive(name: str, searches: str):
    for seed, posed in tiny(8 if searches == "whole" else 5):
        plan = planners.planners(posed, simulate, 0).get(name)
        if plan is None:
            continue
        placement = plan(posed)
        assert check(posed, placement) is None
        assert score(posed, simulate(posed, [placement])[0]) >= optimum(seed), seed


@pytest.mark.parametrize("name", [name for name in NAMES if not planners.BASELINES[name].slower])
def test_who_can_be_slower_than_one_device_says_why(name: str, searches: str):
    for seed, posed in tiny(5 if searches == "whole" else 4):
        named = {key: plan for key, plan in planners.planners(posed, simulate, 0).items() if key in (*planners.SINGLE, name)}
        placements = {key: plan(posed) for key, plan in named.items()}
        times = {key: simulate(posed, [placement])[0].feasible_ns for key, placement in placements.items()}
        assert name not in planners.slower_than_one_device(times), seed


@pytest.mark.parametrize("schedule", [rule if rule in ("critical-path", "fifo") else slow(rule) for rule in RULES])
@pytest.mark.parametrize("name", NAMES)
def test_deterministic_and_under_the_schedule_that_was_asked(name: str, schedule, searches: str):
    graph = chains(3, 4, 1).graph
    posed = problem(graph, cpu_and_gpus(2))
    plan = planners.planner(name, simulate, 7, schedule)
    assert isinstance(plan, Planner)
    first, second = plan(posed), plan(posed)
    assert first.schedule == schedule and np.array_equal(first.device, second.device)
    renamed = problem(ComputationGraph.from_ops("renamed", [op(f"z{i}", 1000, 100) for i in range(12)], list(
        zip(graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True))), cpu_and_gpus(2))  # fmt: skip
    assert np.array_equal(plan(renamed).device, first.device)


GRAPHS = {
    "one op": ComputationGraph.from_ops("one", [op("a")], []),
    "no edges": ComputationGraph.from_ops("bag", [op(f"o{i}", 10 + i) for i in range(9)], []),
    "disconnected": chains(2, 3, 1).graph,
    "no outputs": ComputationGraph.from_ops("silent", [Op(f"o{i}", "Op") for i in range(3)], [(0, -1, 1), (1, -1, 2)]),
    "no kernels": ComputationGraph.from_ops("free", [Op(f"o{i}", "Op", kernel=False) for i in range(3)], [(0, -1, 1)]),
}


@pytest.mark.parametrize(
    "machine", [slow(equal_gpus(1)), equal_gpus(3), cpu_and_gpus(2), slow(cpu_and_gpus(0))], ids=lambda cluster: cluster.name
)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("name", NAMES)
def test_edges_of_the_world(name: str, graph: ComputationGraph, machine: Cluster, searches: str):
    posed = problem(graph, machine)
    named = planners.planners(posed, simulate, 0)
    if name == "cpu" and machine.devices[0].kind != "cpu":
        assert name not in named
        return
    placement = named[name](posed)
    assert check(posed, placement) is None and simulate(posed, [placement])[0].infeasible is None


@pytest.mark.parametrize("name", NAMES)
def test_legal_devices_only(name: str, searches: str):
    ops = [op("a", colocation="x"), Op("look-up", "Op", allowed=("cpu",), colocation="y"), op("b", colocation="y"), op("c", colocation="x"),
           Op("cuda", "Op", allowed=("gpu",)), op("d")]  # fmt: skip
    posed = problem(ComputationGraph.from_ops("rules", ops, [(0, 0, 3), (2, 0, 5), (3, 0, 5)]), cpu_and_gpus(2))
    assert check(posed, planners.planner(name, simulate, 0)(posed)) is None


@pytest.mark.parametrize("name", NAMES)
def test_where_an_op_may_stand_nowhere_it_is_named(name: str):
    ops = [Op("here", "Op", allowed=("cpu",), colocation="x"), Op("there", "Op", allowed=("gpu",), colocation="x")]
    posed = problem(ComputationGraph.from_ops("torn", ops, []), cpu_and_gpus(1))
    with pytest.raises(ValueError, match=r"op 'here': no device of cpu-and-1 is allowed"):
        planners.planner(name, simulate, 0)(posed)


def test_the_best_heuristic_is_the_fastest_of_all_but_searches():
    posed = problem(chains(2, 6, 1).graph, cpu_and_gpus(2))
    assert simulate(posed, [planners.best_heuristic(posed, simulate)])[0].step_time_ns == 6000
