"""The fit of a roofline: constants that times were made from come back, and the calibration says what it can't tell."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs import calibration, roofline
from gnnplace.costs.calibration import Measured, fit_device
from gnnplace.costs.measured import NOT_MEASURED, LinkSample, MeasuredCosts
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output

TEMPLATE = Device("gpu:0", "gpu", 12345, 10**10, 10**10, launch_ns=9, dispatch_ns=8, streams=3)


def graph(seed, num_ops=600, dtypes=("float32",), with_flops=0.5):
    """Ops from bytes to a hundred megabytes and, a part of them, from few to 30 billion flops; some have no kernel and wait for control."""
    generator = np.random.default_rng(seed)
    ops = []
    for op in range(num_ops):
        flops = int(10 ** generator.uniform(2, 10.5)) if generator.random() < with_flops else 0
        output = Output(int(10 ** generator.uniform(2, 8)), dtype=str(generator.choice(dtypes)))
        ops.append(Op(f"op{op}", "Op", (output,), flops=flops, kernel=bool(generator.random() < 0.85)))
    return ComputationGraph.from_ops(f"graph-{seed}", ops, [(0, CONTROL, op) for op in range(1, num_ops) if not ops[op].kernel])


def timed(of, device, noise=0.0, outliers=0.0, seed=0):
    generator = np.random.default_rng(seed)
    slow = np.where(generator.random(of.num_ops) < outliers, generator.uniform(2, 10, of.num_ops), 1)
    times = roofline.modelled_ns(of, device) * np.exp(generator.normal(0, noise, of.num_ops)) * slow
    return Measured(of, times.round().astype(np.int64))


def constants_come_back(memory, intensity, launch, dispatch, seed):
    device = Device("gpu:0", "gpu", 1, int(10 ** (memory + intensity)), int(10**memory), round(10**launch), dispatch)
    found = fit_device(TEMPLATE, [timed(graph(seed + k), device, noise=0.05, seed=seed + k) for k in (0, 1)])
    assert found.device.launch_ns == pytest.approx(device.launch_ns, rel=0.05)
    assert found.device.dispatch_ns == pytest.approx(device.dispatch_ns, rel=0.05)
    assert found.device.memory_bytes_per_s == pytest.approx(device.memory_bytes_per_s, rel=0.05)
    assert found.device.flops_per_s == pytest.approx(device.flops_per_s, rel=0.05)
    assert found.median_error < 0.06 and abs(found.total_error) < 0.05 and found.num_ops == 1200


NOISY = given(st.floats(9.5, 12), st.floats(0.3, 1.7), st.floats(2.5, 4.5), st.integers(50, 900), st.integers(0, 2**32))
test_the_constants_of_a_noisy_device_come_back = settings(max_examples=2, deadline=None)(NOISY(constants_come_back))
test_the_constants_of_many_noisy_devices_come_back = pytest.mark.slow(settings(max_examples=25, deadline=None)(NOISY(constants_come_back)))


def test_what_is_no_constant_of_the_roofline_stays_the_template():
    found = fit_device(TEMPLATE, [timed(graph(1), TEMPLATE)]).device
    assert (found.name, found.kind, found.memory_bytes, found.streams) == ("gpu:0", "gpu", 12345, 3)


def test_a_contended_memory_stays_as_many_times_as_slow():
    device = Device("gpu:0", "gpu", 1, 10**10, 10**9, 9, 8)
    template = replace(TEMPLATE, memory="host", contended_memory_bytes_per_s=TEMPLATE.memory_bytes_per_s // 2)
    costs = timed(graph(1), device)
    measured = MeasuredCosts(costs.graph.name, costs.graph.sha256, costs.graph.op_names, {"gpu": costs.time_ns})
    cluster, fits = calibration.calibrated(Cluster("c", (template,), ()), [(costs.graph, measured)])
    found = cluster.devices[0]
    assert found.memory_bytes_per_s == pytest.approx(10**9, rel=0.01)
    assert found.contended_memory_bytes_per_s == found.memory_bytes_per_s // 2


def test_ops_far_off_the_roofline_hardly_move_it():
    device = Device("gpu:0", "gpu", 1, 10**13, 10**12, 5000, 200)
    found = fit_device(TEMPLATE, [timed(graph(2, 1200), device, noise=0.05, outliers=0.05)])
    assert found.device.launch_ns == pytest.approx(5000, rel=0.05)
    assert found.device.memory_bytes_per_s == pytest.approx(10**12, rel=0.1)
    assert found.device.flops_per_s == pytest.approx(10**13, rel=0.1)
    assert found.median_error < 0.06 and found.total_error < -0.05  # the sum misses what the outliers took, and says so


def test_each_dtype_with_enough_ops_has_its_rate_and_others_the_lowest():
    device = Device("gpu:0", "gpu", 1, {"float32": 10**12, "float16": 8 * 10**12}, 10**11, 2000, 200)
    found = fit_device(TEMPLATE, [timed(graph(3, 1200, ("float32", "float16")), device, noise=0.03)])
    assert set(found.device.flops_per_s) == {"float32", "float16"} and found.undetermined == ()
    assert found.device.rate("float32") == pytest.approx(10**12, rel=0.05)
    assert found.device.rate("float16") == pytest.approx(8 * 10**12, rel=0.05)
    rare = ComputationGraph.from_ops("rare", [Op("f64", "Op", (Output(8, dtype="float64"),), flops=10**9)], [])
    both = fit_device(TEMPLATE, [timed(graph(3, 1200, ("float32", "float16")), device), timed(rare, device)])
    assert set(both.device.flops_per_s) == {"float32", "float16"} and both.num_ops == 1201


def test_it_says_which_constants_the_ops_do_not_show():
    device = Device("gpu:0", "gpu", 1, 10**18, 10**11, 2000, 200)
    found = fit_device(TEMPLATE, [timed(graph(4), device, noise=0.03)])
    assert found.undetermined == ("flops_per_s",)
    assert found.device.memory_bytes_per_s == pytest.approx(10**11, rel=0.05) and abs(found.total_error) < 0.05
    plain = fit_device(TEMPLATE, [timed(ComputationGraph.from_ops("g", [Op("x", "Op", (Output(10**6),))], []), device)])
    assert "dispatch_ns" in plain.undetermined and plain.device.dispatch_ns == TEMPLATE.dispatch_ns
    assert plain.device.flops_per_s == TEMPLATE.flops_per_s  # nothing has flops


def test_ops_that_were_not_measured_do_not_count():
    device = Device("gpu:0", "gpu", 1, 10**12, 10**11, 2000, 200)
    of, times = timed(graph(5), device)
    unmeasured = np.where(np.arange(len(times)) % 2 == 0, times, NOT_MEASURED)
    found = fit_device(TEMPLATE, [Measured(of, unmeasured)])
    assert found.num_ops == 300 and found.device.launch_ns == pytest.approx(2000, rel=0.01) and found.median_error < 0.01
    with pytest.raises(ValueError, match="device 'gpu:0': no op with a kernel was measured"):
        fit_device(TEMPLATE, [Measured(of, np.full(len(times), NOT_MEASURED))])


def test_a_cluster_is_calibrated_where_it_was_measured():
    true = Device("gpu:0", "gpu", 1, 10**12, 10**11, 2000, 200)
    first, second = (timed(graph(seed), true) for seed in (6, 7))
    samples = (LinkSample(1000, 1000, 1500), LinkSample(10**6, 10**6, 10**6 + 500))
    measured = [
        (of, MeasuredCosts(of.name, of.sha256, of.op_names, {"gpu": times}, {("gpu", "gpu"): samples})) for of, times in (first, second)
    ]
    host = Device("cpu:0", "cpu", 1, 10**9, 10**9, 5, 6)
    gpus = (TEMPLATE, Device("gpu:1", "gpu", 1, 10**9, 10**9))
    start = Cluster("c", (host, *gpus), (Link("gpu:0", "gpu:1", 5), Link("cpu:0", "gpu:0", 5)))
    found, fits = calibration.calibrated(start, measured)
    assert set(fits) == {"gpu:0", "gpu:1"} and found.devices[0] == host
    assert [device.launch_ns for device in found.devices[1:]] == pytest.approx([2000, 2000], rel=0.01)
    assert fits["gpu:0"].num_ops == 1200 and found.devices[1].streams == 3
    assert found.links[0].latency_ns == 500 and found.links[0].bandwidth_bytes_per_s == pytest.approx(10**9, rel=0.01)
    assert found.links[1] == start.links[1]
    with pytest.raises(ValueError, match=r"the costs of 'graph-7' .* are not those of the graph 'graph-6'"):
        calibration.calibrated(start, [(first.graph, measured[1][1])])
