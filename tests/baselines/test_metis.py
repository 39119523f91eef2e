import ctypes

import numpy as np
from support.graphs import chains, equal_gpus, op

from gnnplace.baselines.metis import metis
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.simulator.simulator import simulate


def test_parts_are_equal_and_the_cut_is_the_cheap_edge():
    """Two cliques joined by one thin edge."""
    ops = [op(f"o{i}", 10, 1000 if i != 4 else 1) for i in range(10)]
    edges = [(i, 0, j) for half in (range(5), range(5, 10)) for i in half for j in half if i < j] + [(4, 0, 5)]
    posed = problem(ComputationGraph.from_ops("cliques", ops, edges), equal_gpus(2))
    device = metis(posed, simulate, units_name="ops").device
    assert len(set(device[:5].tolist())) == len(set(device[5:].tolist())) == 1 and device[0] != device[9]


def test_work_is_balanced_by_time():
    generator = np.random.default_rng(0)
    ops = [op(f"o{i}", int(time), 10) for i, time in enumerate(generator.integers(100, 1000, 200))]
    posed = problem(ComputationGraph.from_ops("bag", ops, [(i, 0, i + 1) for i in range(198)]), equal_gpus(4))
    placed = metis(posed, simulate, units_name="ops")
    busy = simulate(posed, [placed])[0].busy_ns
    assert busy.max() <= 1.1 * busy.mean()


def test_faster_devices_get_more():
    devices = (Device("cpu:0", "cpu", 10**9, 1, 1), Device("gpu:0", "gpu", 10**9, 1, 1), Device("gpu:1", "gpu", 10**9, 1, 1))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    ops = [op(f"o{i}") for i in range(40)]
    ops = [type(o)(o.name, o.kind, o.outputs, time_ns={"cpu": 1, "gpu:0": 30, "gpu:1": 10}) for o in ops]
    posed = problem(ComputationGraph.from_ops("bag", ops, []), Cluster("c", devices, links))
    count = np.bincount(metis(posed, simulate, units_name="ops").device, minlength=3)
    assert count[0] == 0 and 8 <= count[1] <= 12 and count.sum() == 40


def test_k_chains_use_k_devices():
    posed = chains(4, 20, 4)
    assert simulate(posed, [metis(posed, simulate)])[0].step_time_ns == 20_000


def test_nothing_is_printed_where_parts_stay_empty(capfd):
    """Three units for eight devices."""
    posed = problem(ComputationGraph.from_ops("few", [op(f"o{i}", 10, 1) for i in range(3)], [(0, 0, 1), (1, 0, 2)]), equal_gpus(8))
    metis(posed, simulate, units_name="ops")
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr() == ("", "")
