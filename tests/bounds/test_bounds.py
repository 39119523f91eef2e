"""Bounds, each worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
from support.every_placement import best_step, posed
from support.graphs import chains, equal_gpus, op
from support.slow import slow

from gnnplace.bounds import bounds as module
from gnnplace.bounds import channels
from gnnplace.bounds.bounds import bounds, lower_bound
from gnnplace.bounds.load import Prices, best_prices, load_ns, loads
from gnnplace.bounds.relaxed import relaxed
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output


def cpu_and_gpu(memory_bytes=10**9, latency_ns=0, **columns):
    devices = (Device("cpu:0", "cpu", 10**9, 10**12, 10**12), Device("gpu:0", "gpu", memory_bytes, 10**12, 10**12, **columns))
    links = tuple(Link(a.name, b.name, 10**9, latency_ns=latency_ns) for a in devices for b in devices if a is not b)
    return Cluster("cpu-gpu", devices, links)


def test_chains_by_hand():
    found = bounds(chains(3, 4, 2, time_ns=1000))  # 12,000 ns of work, two devices, paths of 4,000 ns
    assert found == {"critical-path": 4000, "load": 6000, "paths": 4000, "windows": 6000, "split": 4000}


def test_load_sees_unequal_devices():
    ops = [Op(f"op{i}", "Op", time_ns={"gpu:0": 100, "gpu:1": 300}) for i in range(30)]
    made = problem(ComputationGraph.from_ops("unequal", ops, []), equal_gpus(2))
    assert bounds(made)["load"] == 2250  # 3/4 of the work on the fast device: 22.5 ops of 100 ns


def test_load_sees_streams():
    made = posed([op(f"op{i}", 100) for i in range(6)], [], cpu_and_gpu(streams=2))
    assert bounds(made)["load"] == 200  # three streams


@pytest.mark.parametrize(("memory_bytes", "expected"), [(10**9, 300), (20, 600), (25, 450), (9, 1200)])
def test_load_sees_memory(memory_bytes, expected):
    ops = [Op(f"op{i}", "Op", persistent_bytes=10, time_ns={"gpu": 100, "cpu": 300}) for i in range(4)]
    # three quarters on the fast device; it holds two of four, two and a half, or none
    assert bounds(posed(ops, [], cpu_and_gpu(memory_bytes)))["load"] == expected


def test_what_is_not_beside_its_readers_goes_through_a_channel():
    weights = [op(f"w{i}", 1, 400, persistent_bytes=1000) for i in range(4)]
    readers = [Op(f"op{i}", "Op", time_ns={"gpu": 1, "cpu": 10**8}) for i in range(4)]
    made = posed([*weights, *readers], [(i, 0, 4 + i) for i in range(4)], cpu_and_gpu(2500))
    assert bounds(made)["channels"] == 600 and bounds(made)["load"] < 100  # the GPU holds two and a half of four
    roomy = posed([*weights, *readers], [(i, 0, 4 + i) for i in range(4)], cpu_and_gpu(10**4))
    assert "channels" not in bounds(roomy)


def test_readers_may_run_beside_what_is_not_on_their_fastest_device():
    """Of four weights the GPU holds two and a half. A reader takes 50 ns on the CPU, and 400 to be sent what it reads."""
    weights = [op(f"w{i}", 1, 400, persistent_bytes=1000) for i in range(4)]
    readers = [Op(f"op{i}", "Op", time_ns={"gpu": 1, "cpu": 50}) for i in range(4)]
    made = posed([*weights, *readers], [(i, 0, 4 + i) for i in range(4)], cpu_and_gpu(2500))
    assert 66 <= bounds(made)["channels"] <= 70 and bounds(made)["channels"] <= best_step(made)  # 4/3 of 50 ns, 1/6 of 400 ns


def test_several_devices_send_through_several_channels():
    """The CPU, which has to run all readers, holds one of four weights; the others are sent from two GPUs."""
    weights = [op(f"w{i}", 1, 400, persistent_bytes=1000) for i in range(4)]
    readers = [Op(f"op{i}", "Op", time_ns={"cpu": 1}) for i in range(4)]
    devices = (Device("cpu:0", "cpu", 1400, 10**12, 10**12), *equal_gpus(2, memory_bytes=10**4).devices)
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    made = posed([*weights, *readers], [(i, 0, 4 + i) for i in range(4)], Cluster("host", devices, links))
    assert bounds(made)["channels"] == 520  # 1.4 of 4 weights on the CPU, 2.6 * 400 ns through two channels


@pytest.mark.parametrize("tries", [60, slow(600)])
@pytest.mark.parametrize(("cpu_ns", "most_ns"), [(50, 70), (10**8, 600)])
def test_any_prices_prove_a_channels_bound(cpu_ns, most_ns, tries):
    weights = [op(f"w{i}", 1, 400, persistent_bytes=1000) for i in range(4)]
    readers = [Op(f"op{i}", "Op", time_ns={"gpu": 1, "cpu": cpu_ns}) for i in range(4)]
    made = relaxed(posed([*weights, *readers], [(i, 0, 4 + i) for i in range(4)], cpu_and_gpu(2500)), 64)
    program, generator = channels.program(made, 400), np.random.default_rng(0)
    prices = channels._solved(program)
    assert channels._value_ns(program, prices) == channels.channels_ns(made) <= most_ns
    for _ in range(tries):
        other = channels.RowPrices(*(each * generator.choice([0, 0.5, 1, 1, 2], size=each.shape) for each in prices))
        assert channels._value_ns(program, other) <= most_ns


def test_results_are_held_like_parameters():
    ops = [Op(f"op{i}", "Op", (Output(10, is_result=True),), time_ns={"gpu": 100, "cpu": 300}) for i in range(4)]
    assert bounds(posed(ops, [], cpu_and_gpu(20)))["load"] == 600
    aliases = [op("whole", 1, 1), *(Op(f"op{i}", "Op", (Output(10, alias_of=(0, 0), is_result=True),), time_ns={"gpu": 100, "cpu": 300})
                                   for i in range(4))]  # fmt: skip
    made = posed(aliases, [(0, 0, i) for i in range(1, 5)], cpu_and_gpu(20))
    assert best_step(made) >= lower_bound(made) and bounds(made)["load"] == 301  # 1 + 4 * 100 against 300: (401 * 3) / 4


@pytest.mark.parametrize("columns", [{"workspace_bytes": 60}, {"persistent_bytes": 60}, {"outputs": (Output(60),)}])
def test_an_op_stands_where_it_fits(columns):
    made = posed([op("fed", 10, 41), Op("op", "Op", time_ns={"gpu": 100, "cpu": 300}, **columns)], [(0, 0, 1)], cpu_and_gpu(100))
    assert bounds(made)["critical-path"] == 310 == best_step(made)  # 101 bytes while it runs
    made = posed([op("fed", 10, 40), Op("op", "Op", time_ns={"gpu": 100, "cpu": 300}, **columns)], [(0, 0, 1)], cpu_and_gpu(100))
    assert bounds(made)["critical-path"] == 110 == best_step(made)


def test_what_must_cross_is_on_the_path():
    ops = [op("a", 10, 500, allowed=("cpu",)), op("b", 20, 300, allowed=("gpu",)), op("c", 30, allowed=("cpu",))]
    made = posed(ops, [(0, 0, 1), (1, 0, 2)], cpu_and_gpu(latency_ns=7))
    assert bounds(made)["critical-path"] == 60
    assert bounds(made)["paths"] == 10 + 507 + 20 + 307 + 30 == best_step(made)


def test_control_crosses_in_the_latency():
    made = posed([op("a", 10, 500, allowed=("cpu",)), op("b", 20, allowed=("gpu",))], [(0, -1, 1)], cpu_and_gpu(latency_ns=7))
    assert bounds(made)["paths"] == 37 == best_step(made)


def test_a_received_transfer_counts_twice():
    cluster = cpu_and_gpu(latency_ns=7)
    cluster = replace(cluster, links=tuple(replace(link, receive_channel="inbox") for link in cluster.links))
    made = posed([op("a", 10, 500, allowed=("cpu",)), op("b", 20, allowed=("gpu",))], [(0, 0, 1)], cluster)
    assert bounds(made)["paths"] == 10 + 1007 + 20 == best_step(made)


def test_an_op_on_a_faster_device_pays_for_the_way():
    def chain(size):
        ops = [op("a", 100, size), Op("b", "Op", (Output(size),), time_ns={"cpu": 40, "gpu": 70}), op("c", 100, 0, allowed=("gpu",))]
        return posed([replace(ops[0], allowed=("gpu",)), *ops[1:]], [(0, 0, 1), (1, 0, 2)], cpu_and_gpu())

    for size, expected in ((10, 260), (15, 270), (100, 270)):  # 40 and two transfers, or 70
        assert bounds(chain(size))["paths"] == expected == best_step(chain(size))
    assert bounds(chain(100))["critical-path"] == 240


@pytest.mark.parametrize(("size", "streams", "expected"), [(60, 1, 170), (150, 1, 210), (150, 2, 110)])
def test_inputs_are_together_or_apart(size, streams, expected):
    cluster = equal_gpus(2)
    cluster = replace(cluster, devices=tuple(replace(device, streams=streams) for device in cluster.devices))
    made = posed([op("a", 100, size), op("b", 100, size), op("c", 10)], [(0, 0, 2), (1, 0, 2)], cluster)
    # one of both is sent in `size` after 100; or they run one after the other, if there is but one stream
    assert bounds(made)["paths"] == expected == best_step(made)


def test_consumers_are_together_or_apart():
    made = posed([op("a", 10, 60), op("b", 100), op("c", 100)], [(0, 0, 1), (0, 0, 2)], equal_gpus(2))
    assert bounds(made)["paths"] == 10 + 60 + 100 == best_step(made)


def test_inputs_that_no_memory_holds_are_apart():
    ops = [op("a", 100, 150, persistent_bytes=10), op("b", 100, 150, persistent_bytes=10), op("c", 10)]
    made = posed(ops, [(0, 0, 2), (1, 0, 2)], equal_gpus(2, memory_bytes=319))
    assert bounds(made)["paths"] == 210 == best_step(posed(ops, [(0, 0, 2), (1, 0, 2)], equal_gpus(2)))
    ops = [replace(one, persistent_bytes=200) for one in ops[:2]] + ops[2:]
    made = posed(ops, [(0, 0, 2), (1, 0, 2)], equal_gpus(2, memory_bytes=500))
    assert bounds(made)["paths"] == 210
    tight = [replace(one, persistent_bytes=300) for one in ops[:2]] + ops[2:]
    made = posed(tight, [(0, 0, 2), (1, 0, 2)], equal_gpus(2, memory_bytes=599))
    assert bounds(made)["paths"] == 260 == bounds(made)["split"]
    assert best_step(posed(tight, [(0, 0, 2), (1, 0, 2)], equal_gpus(2, memory_bytes=620))) == 260


def test_a_component_that_no_memory_holds_is_cut():
    ops = [op("a", 10, 100, persistent_bytes=300), op("b", 10, 100), op("c", 10), op("d", 10, persistent_bytes=300)]
    edges = [(0, 0, 2), (1, 0, 2), (1, 0, 3)]  # no op has both a and d before it or behind it
    made = posed(ops, edges, equal_gpus(2, memory_bytes=599))
    assert bounds(made)["split"] == 120 == best_step(made)
    assert max(bound for name, bound in bounds(made).items() if name != "split") < 120
    assert bounds(posed(ops, edges, equal_gpus(2)))["split"] == 40  # one after the other on one device


def test_load_between_a_head_and_a_tail():
    middle = [op(f"m{i}", 100) for i in range(4)]
    made = posed([op("a", 10), *middle, op("z", 10)], [(0, 0, i) for i in range(1, 5)] + [(i, 0, 5) for i in range(1, 5)], equal_gpus(2))
    assert bounds(made)["paths"] == 10 + 200 + 10 <= best_step(made) <= 222  # and a transfer of 1 ns each way
    sinks = [op(f"z{i}", 10) for i in range(4)]
    edges = [(0, 0, i) for i in range(1, 5)] + [(i, 0, i + 4) for i in range(1, 5)]
    made = posed([op("a", 10), *middle, *sinks], edges, equal_gpus(2))
    assert bounds(made)["windows"] == 10 + 220 <= best_step(made, ("critical-path",)) <= 231


def test_a_group_is_through_on_one_device():
    ops = [Op("a", "Op", colocation="g", time_ns={"cpu": 10, "gpu": 90}), Op("b", "Op", colocation="g", time_ns={"cpu": 80, "gpu": 10})]
    made = posed(ops, [], cpu_and_gpu())
    assert bounds(made)["critical-path"] == 10 and bounds(made)["paths"] == 80 and best_step(made) == 90


def test_an_op_that_is_allowed_nowhere_stands_anywhere():
    made = posed([Op("a", "Op", time_ns={"npu": 5, "tpu": 9}), op("b", 10)], [(0, -1, 1)], cpu_and_gpu())
    assert bounds(made)["critical-path"] == 19  # the longest of its times


@pytest.mark.parametrize("tries", [40, slow(400)])
def test_any_prices_prove_a_bound(tries):
    ops = [Op(f"op{i}", "Op", persistent_bytes=10, time_ns={"gpu": 100, "cpu": 300}) for i in range(4)]
    needs = loads(relaxed(posed(ops, [], cpu_and_gpu(20)), 4))
    generator = np.random.default_rng(0)
    for _ in range(tries):
        prices = Prices(generator.random(2), generator.random(2) * 1000)
        assert load_ns(needs, prices) <= 600 == load_ns(needs, best_prices(needs))


def test_beyond_the_quadratic_limit_paths_are_named_transfers(monkeypatch):
    monkeypatch.setattr(module, "MOST_QUADRATIC", 5)
    found = bounds(chains(2, 3, 2, time_ns=1000))
    assert found["transfers"] == 3000 and "paths" not in found and found["windows"] == 3000
