import numpy as np
import pytest
from support.graphs import equal_gpus, op

from gnnplace.baselines.single import fastest, fastest_that_fits
from gnnplace.cluster import Cluster, Device
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op
from gnnplace.placement import Placement
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate


def placed(*devices: int) -> Placement:
    return Placement(np.array(devices, dtype=np.int32))


def test_the_fastest_feasible_wins_and_the_first_of_equals():
    posed = problem(ComputationGraph.from_ops("two", [op("a"), op("b")], []), equal_gpus(2))
    choices = [placed(0, 0), placed(0, 1), placed(1, 0)]
    assert fastest(posed, choices, simulate) is choices[1]


def test_a_slow_feasible_placement_beats_a_fast_one_that_overflows_and_less_overflow_beats_more():
    graph = ComputationGraph.from_ops(
        "two", [Op("a", "Op", persistent_bytes=6, time_ns={"gpu": 5}), Op("b", "Op", persistent_bytes=6, time_ns={"gpu": 5})], []
    )
    posed = problem(graph, Cluster("c", tuple(Device(f"gpu:{i}", "gpu", memory, 1, 1) for i, memory in enumerate((12, 4, 5))), ()))
    assert fastest(posed, [placed(0, 1), placed(0, 0)], simulate).device.tolist() == [0, 0]
    assert fastest(posed, [placed(1, 1), placed(0, 1), placed(0, 2)], simulate).device.tolist() == [0, 2]
    results = simulate(posed, [placed(0, 0), placed(0, 1)])
    assert [score(posed, result) for result in results] == [(0, 0, 10), (1, 2, 5)]


def test_a_placement_without_a_link_comes_last():
    graph = ComputationGraph.from_ops("edge", [op("a", 1, 1), op("b", 1)], [(0, 0, 1)])
    posed = problem(graph, Cluster("c", tuple(Device(f"gpu:{i}", "gpu", 0, 1, 1) for i in range(2)), ()))
    assert fastest(posed, [placed(0, 1), placed(0, 0)], simulate).device.tolist() == [0, 0]


def test_nothing_to_choose_from():
    posed = problem(ComputationGraph.from_ops("one", [op("a")], []), equal_gpus(1))
    with pytest.raises(ValueError, match="at least one is needed"):
        fastest(posed, [], simulate)


def test_further_proposals_are_asked_for_only_where_none_so_far_fits():
    graph = ComputationGraph.from_ops("two", [op(name, persistent_bytes=6) for name in "ab"], [])
    posed, asked = problem(graph, equal_gpus(2, memory_bytes=10)), []

    def proposed(*devices):
        asked.append(devices)
        return [placed(*devices)]

    def proposals(*every):
        return (proposed(*devices) for devices in every)

    assert fastest_that_fits(posed, proposals((0, 0), (0, 1), (1, 0)), simulate).device.tolist() == [0, 1]
    assert asked == [(0, 0), (0, 1)]
    assert fastest_that_fits(posed, proposals((1, 1)), simulate).device.tolist() == [1, 1]
    with pytest.raises(ValueError, match="at least one"):
        fastest_that_fits(posed, [], simulate)
