"""Planners without one of several equal devices: what they propose is what they propose where there is one less, judged by the whole."""

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import equal_gpus, op

from gnnplace.baselines.fewer import OnPart, parts
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.rations import Rationed, shares
from gnnplace.cluster import Cluster
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.portfolio import planners, portfolio
from gnnplace.problems import Problem
from gnnplace.result import Planner, score
from gnnplace.simulator.simulator import simulate

OPS = 24


def posed(cluster: Cluster) -> Problem:
    """Wide layers of unequal ops, so that every device has a use."""
    ops = [op(f"op{i}", 100 + 37 * i % 50, 20 + i, persistent_bytes=10 + i) for i in range(OPS)]
    edges = [(source, 0, i) for i in range(6, OPS) for source in (i - 6, i - 6 + (i % 5) + 1)]
    return problem(ComputationGraph.from_ops("layers", ops, edges), cluster)


def with_memories(*sizes: int) -> Cluster:
    cluster = equal_gpus(len(sizes))
    return replace(cluster, devices=tuple(replace(each, memory_bytes=size) for each, size in zip(cluster.devices, sizes, strict=True)))


@pytest.mark.parametrize(
    ("memories", "left"),
    [
        ((9, 9, 9), {"gpu:2": ("gpu:0", "gpu:1")}),
        ((5, 9, 5, 9), {"gpu:2": ("gpu:0", "gpu:1", "gpu:3"), "gpu:3": ("gpu:0", "gpu:1", "gpu:2")}),
        ((1, 2, 3), {}),  # none are equal
        ((9, 9), {}),  # one would be left, which has nothing to share
    ],
)
def test_the_last_of_each_class_of_equal_devices_is_left_out(memories, left):
    found = parts(posed(with_memories(*memories)))
    assert {device: part.problem.cluster.device_names for device, part in found.items()} == left
    assert all(part.problem.graph is part.whole.graph for part in found.values())  # all that is known of a graph is known of a part


def test_a_part_is_judged_and_counted_as_the_whole():
    whole, generator = posed(with_memories(200, 300, 200, 200)), np.random.default_rng(0)
    part, budget = parts(whole)["gpu:3"], Budget(evaluations=99)
    judge = OnPart(Rationed(simulate, budget), part)
    placements = [Placement(generator.integers(0, 3, OPS).astype(np.int32)) for _ in range(20)]
    for heard, other in zip(judge(part.problem, placements), simulate(part.problem, placements), strict=True):
        assert score(part.problem, heard) == score(part.problem, other) and heard.infeasible == other.infeasible
    assert budget.spent == 20


def test_a_part_is_rationed_as_the_whole():
    whole = posed(equal_gpus(3))
    evaluate, (part,) = Rationed(simulate, Budget(evaluations=99)), parts(whole).values()
    evaluate.left, left = 6, []
    judge = OnPart(evaluate, part)
    for device, _ in enumerate(shares(judge, 2)):
        left.append(judge.left)
        judge(part.problem, [Placement(np.full(OPS, device, np.int32))])
    assert left == [3, 5] and evaluate.left == 5  # the other device is no faster


@pytest.mark.slow
def test_what_is_proposed_is_what_is_proposed_where_there_is_one_device_less():
    whole, smaller = posed(equal_gpus(4)), posed(equal_gpus(3))
    asked = planners.without_one(whole, Rationed(simulate, Budget(evaluations=9999)), "critical-path")
    named = planners.planners(smaller, simulate, 0)
    on_units = [name for name, baseline in planners.BASELINES.items() if baseline.takes == "units" and name in named]
    assert list(asked) == [f"{name} without gpu:3" for name in on_units]
    for name, plan in asked.items():
        assert np.array_equal(plan(whole).device, named[name.partition(" ")[0]](smaller).device)


class AskedError(Exception):
    """Who is asked."""


@pytest.mark.parametrize(("budget", "some"), [(Budget(evaluations=300), True), (Budget(seconds=60.0), False)])
def test_they_are_asked_last_and_where_evaluations_are_counted(monkeypatch: pytest.MonkeyPatch, budget, some):
    def best(problem: Problem, evaluate: Rationed, starts: dict[str, Planner], *rest: object) -> None:
        raise AskedError(*starts)

    monkeypatch.setattr(portfolio, "best", best)
    with pytest.raises(AskedError) as asked:
        portfolio.portfolio(posed(equal_gpus(3)), simulate, budget, portfolio.Options(schedule="critical-path"))
    without = ["without" in name for name in asked.value.args]
    assert without == sorted(without) and any(without) == some
