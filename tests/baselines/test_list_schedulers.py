"""What all list schedulers promise beyond what every baseline does: memory, links, and often the optimum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.exhaustive import exhaustive
from support.graphs import equal_gpus, op
from support.random_problems import tiny_problems
from support.slow import slow

from gnnplace.baselines.baechi import m_etf, m_sct, m_topo
from gnnplace.baselines.cpop import critical_path_first
from gnnplace.baselines.heft import heft
from gnnplace.baselines.peft import peft
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate

ASK_FOR_LINKS = [heft, peft, critical_path_first, m_etf, m_sct]
PLANNERS = [*ASK_FOR_LINKS, m_topo]
Scheduler = Callable[..., Placement]


@pytest.fixture(scope="module", params=[(200, 16), slow((600, 30))], ids=str)
def tiny(request: pytest.FixtureRequest) -> list[Problem]:
    return [posed for _, posed in tiny_problems(range(200, 320), *request.param)]


@pytest.fixture(scope="module")
def optimum(tiny: list[Problem]) -> list[tuple[int, int, int]]:
    return [score(posed, simulate(posed, [exhaustive(posed, simulate)])[0]) for posed in tiny]


@pytest.mark.parametrize("plan", PLANNERS)
def test_never_better_than_the_optimum_and_often_it(plan: Scheduler, tiny: list[Problem], optimum: list[tuple[int, int, int]]):
    reached = 0
    for posed, best in zip(tiny, optimum, strict=True):
        placement = plan(posed, simulate, units_name="ops")
        found = score(posed, simulate(posed, [placement])[0])
        assert found >= best
        reached += found == best
    assert reached > len(tiny) / 4


@pytest.mark.parametrize("plan", PLANNERS)
def test_persistent_memory_is_respected_where_it_can_be(plan: Scheduler):
    """Nine of 30 bytes on three devices of 100, in a chain, where one device would be fastest."""
    ops = [op(f"o{i}", 10, 1, persistent_bytes=30) for i in range(9)]
    posed = problem(ComputationGraph.from_ops("memory", ops, [(i, 0, i + 1) for i in range(8)]), equal_gpus(3, memory_bytes=100))
    device = plan(posed, simulate, units_name="ops").device
    assert np.bincount(device).tolist() == [3, 3, 3]


@pytest.mark.parametrize("plan", ASK_FOR_LINKS)
def test_devices_without_a_link_to_the_inputs_are_not_chosen(plan: Scheduler):
    """gpu:1 is ten times as fast but can't be reached from gpu:0, where `a` must stand."""
    devices = tuple(Device(f"gpu:{i}", "gpu", 10**9, 10**12, 10**12) for i in range(3))
    posed = problem(
        ComputationGraph.from_ops("island", [
            Op("a", "Op", (Output(1),), time_ns={"gpu:0": 10}),
            *(Op(name, "Op", time_ns={"gpu:0": 100, "gpu:1": 10, "gpu:2": 100}) for name in ("b", "c")),
        ], [(0, 0, 1), (0, 0, 2)]),
        Cluster("islands", devices, (Link("gpu:0", "gpu:2", 10**9),)),
    )  # fmt: skip
    placement = plan(posed, simulate, units_name="ops")
    assert sorted(placement.device.tolist()) == [0, 0, 2] and simulate(posed, [placement])[0].infeasible is None
