import pytest
from support.graphs import chains, op

from gnnplace.baselines.single import OneDevice, best_device, on_each, single_cpu, single_gpu
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.simulator.simulator import simulate


def machine(*gpu_memory: int) -> Cluster:
    devices = [Device("cpu:0", "cpu", 10**6, 10**9, 10**9)]
    devices += [Device(f"gpu:{i}", "gpu", memory, 10**12, 10**12) for i, memory in enumerate(gpu_memory)]
    links = [Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b]
    return Cluster("machine", tuple(devices), tuple(links))


def test_what_is_not_allowed_goes_elsewhere_with_its_group():
    ops = [op("a"), Op("look-up", "Op", allowed=("cpu",), colocation="g"), op("c", colocation="g"), op("d")]
    posed = problem(ComputationGraph.from_ops("g", ops, [(0, 0, 3)]), machine(100))
    assert single_gpu(posed, simulate).device.tolist() == [1, 0, 0, 1]
    assert single_cpu(posed, simulate).device.tolist() == [0, 0, 0, 0]


def test_the_best_gpu_is_one_that_fits_and_the_fastest_of_those():
    ops = [Op("a", "Op", persistent_bytes=50, time_ns={"cpu": 9, "gpu:0": 1, "gpu:1": 3, "gpu:2": 2})]
    posed = problem(ComputationGraph.from_ops("g", ops, []), machine(10, 60, 70))
    assert single_gpu(posed, simulate).device.tolist() == [3]


def test_where_none_fits_it_is_the_one_that_overflows_least():
    posed = problem(ComputationGraph.from_ops("g", [Op("a", "Op", persistent_bytes=50)], []), machine(10, 30, 20))
    assert single_gpu(posed, simulate).device.tolist() == [2]


def test_a_cluster_without_a_cpu_is_named():
    with pytest.raises(ValueError, match=r"gpus-2: no device of kind 'cpu'"):
        single_cpu(chains(1, 2, 2), simulate)
    assert [each.device.tolist() for each in on_each(chains(1, 2, 2), [1, 0])] == [[1, 1], [0, 0]]


def test_the_best_device_is_one_that_fits_or_else_the_fastest_and_none_where_links_are_missing():
    ops = [Op("a", "Op", persistent_bytes=50, time_ns={"cpu": 9, "gpu:0": 1, "gpu:1": 3, "gpu:2": 2})]
    graph = ComputationGraph.from_ops("g", ops, [])
    assert best_device(problem(graph, machine(10, 60, 70)), simulate) == OneDevice(3, 2, fits=True)
    heavy = ComputationGraph.from_ops("g", [Op("a", "Op", persistent_bytes=2 * 10**6, time_ns={"cpu": 9, "gpu": 4})], [])
    assert best_device(problem(heavy, machine(10, 30)), simulate) == OneDevice(1, 4, fits=False)
    apart = Cluster("apart", machine(100).devices, ())
    fixed = [Op("a", "Op", (Output(8),), allowed=("cpu",)), Op("b", "Op", allowed=("gpu",))]
    assert best_device(problem(ComputationGraph.from_ops("g", fixed, [(0, 0, 1)]), apart), simulate) is None
