"""What all list schedulers promise: legal devices, memory, links, and never more than the optimum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from graphs import chains, equal_gpus, op
from random_problems import random_case

from gnnplace.baselines.critical_path_first import critical_path_first
from gnnplace.baselines.exhaustive import exhaustive
from gnnplace.baselines.fastest import standing
from gnnplace.baselines.heft import heft
from gnnplace.baselines.m_etf import m_etf
from gnnplace.baselines.m_sct import m_sct
from gnnplace.baselines.m_topo import m_topo
from gnnplace.baselines.peft import peft
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.evaluate.simulator import simulate
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement, check
from gnnplace.problem import Problem
from gnnplace.transforms.units import allowed, units

UNITS = ("ops", "weights", "coarse")
ASK_FOR_LINKS = [heft, peft, critical_path_first, m_etf, m_sct]
PLANNERS = [*ASK_FOR_LINKS, m_topo]
Scheduler = Callable[..., Placement]


def one_cpu(gpus: int) -> Cluster:
    devices = [Device("cpu:0", "cpu", 10**9, 10**9, 10**9), *(Device(f"gpu:{i}", "gpu", 10**9, 10**12, 10**12) for i in range(gpus))]
    return Cluster(f"cpu-and-{gpus}", tuple(devices), tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b))


def tiny(seed: int) -> Problem | None:
    posed = random_case(seed).problem()
    try:
        count = np.prod(allowed(posed, units(posed.graph, "ops")).sum(axis=1, dtype=np.float64))
    except ValueError:
        return None
    return posed if count <= 600 else None


TINY = [posed for seed in range(200, 320) if (posed := tiny(seed)) is not None][:30]


@pytest.fixture(scope="module")
def optimum() -> list[tuple[int, int, int]]:
    return [standing(posed, simulate(posed, [exhaustive(posed, simulate)])[0]) for posed in TINY]


@pytest.mark.parametrize("plan", PLANNERS)
def test_never_better_than_the_optimum_and_often_it(plan: Scheduler, optimum: list[tuple[int, int, int]]):
    reached = 0
    for posed, best in zip(TINY, optimum, strict=True):
        placement = plan(posed, simulate, units_name="ops")
        illegal = ~posed.allowed[np.arange(posed.num_ops), placement.device]
        assert not illegal.any()
        found = standing(posed, simulate(posed, [placement])[0])
        assert found >= best
        reached += found == best
    assert reached >= 8


@pytest.mark.parametrize("units_name", UNITS)
@pytest.mark.parametrize("plan", PLANNERS)
def test_names_change_nothing_and_nor_does_a_second_run(plan: Scheduler, units_name: str):
    def case(prefix: str) -> Problem:
        graph = chains(3, 5, 1).graph
        edges = list(zip(graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True))
        return problem(ComputationGraph.from_ops(prefix, [op(f"{prefix}{97 - i}", 10 + i, 5) for i in range(15)], edges), equal_gpus(3))

    first = plan(case("a"), simulate, units_name=units_name)
    for other in (case("a"), case("z")):
        assert np.array_equal(plan(other, simulate, units_name=units_name).device, first.device)


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


@pytest.mark.parametrize("plan", PLANNERS)
def test_ops_of_some_kinds_and_colocation(plan: Scheduler):
    ops = [op("a", colocation="x"), Op("look-up", "Op", allowed=("cpu",), colocation="y"), op("b", colocation="y"), op("c", colocation="x"),
           Op("cuda", "Op", allowed=("gpu",)), op("d")]  # fmt: skip
    posed = problem(ComputationGraph.from_ops("rules", ops, [(0, 0, 3), (2, 0, 5), (3, 0, 5)]), one_cpu(2))
    assert check(posed, plan(posed, simulate, units_name="ops")) is None
    torn = [Op("here", "Op", allowed=("cpu",), colocation="x"), Op("there", "Op", allowed=("gpu",), colocation="x")]
    with pytest.raises(ValueError, match=r"op 'here': no device of cpu-and-1 is allowed"):
        plan(problem(ComputationGraph.from_ops("torn", torn, []), one_cpu(1)), simulate)


WORLD = {
    "one op": ComputationGraph.from_ops("one", [op("a")], []),
    "no edges": ComputationGraph.from_ops("bag", [op(f"o{i}", 10 + i) for i in range(9)], []),
    "disconnected": chains(2, 3, 1).graph,
    "no outputs": ComputationGraph.from_ops("silent", [Op(f"o{i}", "Op") for i in range(3)], [(0, -1, 1), (1, -1, 2)]),
    "no kernels": ComputationGraph.from_ops("free", [Op(f"o{i}", "Op", kernel=False) for i in range(3)], [(0, -1, 1)]),
}


@pytest.mark.parametrize("machine", [equal_gpus(1), equal_gpus(3), one_cpu(2), one_cpu(0)], ids=lambda cluster: cluster.name)
@pytest.mark.parametrize("graph", WORLD.values(), ids=WORLD)
@pytest.mark.parametrize("plan", PLANNERS)
def test_edges_of_the_world(plan: Scheduler, graph: ComputationGraph, machine: Cluster):
    posed = problem(graph, machine)
    placement = plan(posed, simulate)
    assert check(posed, placement) is None and simulate(posed, [placement])[0].infeasible is None
