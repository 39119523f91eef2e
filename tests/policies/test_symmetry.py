"""Interchangeable devices: links, channels, memories and times count, and a renamed placement takes as long as before."""

from random import Random

import numpy as np
import pytest
from support.graphs import equal_gpus

from gnnplace.baselines.heft import heft
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import clusters, manifest
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.policies.symmetry import by_first_use, interchangeable
from gnnplace.simulator.simulator import simulate


def tree(size, seed=0):
    """Every output has one reader at most, so that no transfer's turn depends on the numbers of devices."""
    random = Random(seed)
    ops = [Op(f"o{i}", "Op", (Output(random.randint(1, 999)),), time_ns={"gpu": random.randint(1, 999)}) for i in range(size)]
    return ComputationGraph.from_ops("tree", ops, [(i, 0, random.randint(i + 1, size - 1)) for i in range(size - 1)])


def gpus(*names, **columns):
    return tuple(Device(name, "gpu", 10**9, 10**12, 10**12, **columns) for name in names)


def among(devices, **columns):
    return tuple(Link(a.name, b.name, 10**9, **columns) for a in devices for b in devices if a is not b)


def alike(devices, links):
    return interchangeable(problem(tree(3), Cluster("c", tuple(devices), tuple(links)))).tolist()


def test_equal_gpus_are_interchangeable():
    assert interchangeable(problem(tree(3), equal_gpus(3))).tolist() == [0, 0, 0]


def test_each_column_of_a_device_counts():
    a, b = gpus("a", "b")
    for other in (
        Device("b", "gpu", 10**8, 10**12, 10**12),
        Device("b", "gpu", 10**9, 10**12, 10**12, launch_ns=1),
        Device("b", "gpu", 10**9, 10**12, 10**12, dispatch_ns=1),
        Device("b", "gpu", 10**9, 10**12, 10**12, received="parts"),
    ):
        assert alike([a, other], among([a, other])) == [0, 1]
    assert alike([a, b], among([a, b])) == [0, 0]


@pytest.mark.parametrize("column", ["bandwidth_bytes_per_s", "latency_ns", "overhead_ns"])
def test_links_to_a_third_count(column):
    devices = gpus("a", "b", "c")
    faster = {"bandwidth_bytes_per_s": 10**9} | {column: 7}
    links = [Link("a", "b", 10**9), Link("b", "a", 10**9), Link("a", "c", **faster), Link("b", "c", 10**9)]
    assert alike(devices, links) == [0, 1, 2]
    assert alike(devices, [*links[:3], Link("b", "c", **faster)]) == [0, 0, 2]


def test_a_link_that_one_of_them_lacks_counts():
    assert alike(gpus("a", "b"), [Link("a", "b", 10**9)]) == [0, 1]


def test_channels_are_renamed_one_to_one():
    devices = gpus("a", "b", "c", "d")
    own = [Link(a, b, 10**9, channel=f"from {a}") for a in "abcd" for b in "abcd" if a != b]
    assert alike(devices, own) == [0, 0, 0, 0]
    halves = [Link(a, b, 10**9, channel="left" if a in "ab" else "right") for a in "abcd" for b in "abcd" if a != b]
    assert alike(devices, halves) == [0, 0, 2, 2]
    copies_itself = [Link(a, b, 10**9, channel="a" if a == "a" else None) for a in "abcd" for b in "abcd" if a != b]
    assert alike(devices, copies_itself) == [0, 1, 1, 1]
    receives = [Link(a, b, 10**9, receive_channel="pcie" if b in "cd" else None) for a in "abcd" for b in "abcd" if a != b]
    assert alike(devices, receives) == [0, 0, 2, 2]


def test_shared_memories_are_renamed_one_to_one():
    devices = (*gpus("a", "b", memory="m"), *gpus("c", "d", memory="n"))
    assert alike(devices, among(devices)) == [0, 0, 2, 2]  # exchanging b and c would part both pairs
    devices = (*gpus("a", memory="m"), *gpus("b"))
    assert alike(devices, among(devices)) == [0, 1]


def test_times_that_name_a_device_count():
    ops = [Op("a", "Op", time_ns={"gpu:0": 1, "gpu:1": 2, "gpu:2": 2})]
    assert interchangeable(problem(ComputationGraph.from_ops("g", ops, []), equal_gpus(3))).tolist() == [0, 1, 1]


def test_devices_are_renamed_within_their_classes():
    devices = (*gpus("a", "b"), *(Device(name, "gpu", 10**8, 10**12, 10**12) for name in "cd"))
    of = problem(tree(3), Cluster("c", devices, among(devices)))
    assert by_first_use(of, np.array([3, 1, 3, 2, 0])).tolist() == [2, 0, 2, 3, 1]


def random_cluster(random):
    """2-5 GPUs of two sizes, some of one memory, with links of few rates and several ways to share channels."""
    count, channel = random.randint(2, 5), random.choice([None, "own", "all"])
    memory = random.choice([lambda i: None, lambda i: f"m{i % 2}"])
    devices = [Device(f"g{i}", "gpu", random.choice([10**9, 10**9, 10**8]), 10**12, 10**12, memory=memory(i)) for i in range(count)]
    rate = random.choice([lambda: 10**9, lambda: random.choice([10**9, 10**9, 10**9, 10**8])])
    named = {None: lambda a, b: None, "own": lambda a, b: f"{a} to {b}", "all": lambda a, b: "bus"}[channel]
    names = [device.name for device in devices]
    return Cluster("random", tuple(devices), tuple(Link(a, b, rate(), channel=named(a, b)) for a in names for b in names if a != b))


def test_a_renamed_placement_takes_as_long():
    renamed = 0
    for seed in range(60):
        random = Random(seed)
        of = problem(tree(12, seed), random_cluster(random))
        device = np.array([random.randrange(of.num_devices) for _ in range(12)])
        other = by_first_use(of, device)
        before, after = simulate(of, [Placement(each.astype(np.int32)) for each in (device, other)])
        assert (before.step_time_ns, before.infeasible is None) == (after.step_time_ns, after.infeasible is None)
        renamed += not np.array_equal(device, other)
    assert renamed > 10


def test_unequal_pairs_of_v100_8_are_not_exchanged():
    """Its GPUs have links of 10, 25 and 50 GB/s: renamed by kind and size alone, this placement took 1,956,466 ns instead of 1,679,585."""
    of = problem(manifest.graph("dlrm"), clusters.cluster("v100-8"))
    placement = heft(of, simulate, units_name="ops")
    other = Placement(by_first_use(of, placement.device.astype(np.int64)).astype(np.int32), placement.schedule)
    before, after = simulate(of, [placement, other])
    assert before.step_time_ns == after.step_time_ns
