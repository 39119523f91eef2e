"""Scotch, by graphs whose best mapping is plain to see; how it fails without its library."""

from ctypes.util import find_library

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op

from gnnplace.baselines import scotch_library
from gnnplace.baselines.scotch import min_cut, scotch
from gnnplace.baselines.scotch_library import MissingScotchError, Weighted, mapped
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.simulator.simulator import simulate

pytestmark = pytest.mark.skipif(find_library("scotch-7.0") is None, reason="needs Debian's libscotch-7.0")


def cliques(count: int, size: int, joined: list[tuple[int, int]]) -> ComputationGraph:
    """Cliques of ops of the same work and heavy edges; `joined` are cliques that a light edge joins."""
    ops = [op(f"o{i}", 10, 1000) for i in range(count * size)]
    for i in range(count):
        ops[i * size + size - 1] = op(f"o{i * size + size - 1}", 10, 10)  # nothing in its clique takes it
    edges = [(c * size + i, 0, c * size + j) for c in range(count) for i in range(size) for j in range(i + 1, size)]
    return ComputationGraph.from_ops("cliques", ops, edges + [(a * size + size - 1, 0, b * size) for a, b in joined])


def test_parts_are_equal_and_the_cut_is_the_cheap_edge():
    posed = problem(cliques(2, 5, [(0, 1)]), equal_gpus(2))
    device = scotch(posed, simulate, units_name="ops").device
    assert len(set(device[:5].tolist())) == len(set(device[5:].tolist())) == 1 and device[0] != device[9]


def test_what_is_joined_goes_where_links_are_fast():
    """Four devices, of which 0 and 2, 1 and 3 are near each other; four cliques in two pairs."""
    names = [f"gpu:{i}" for i in range(4)]
    near = {(0, 2), (2, 0), (1, 3), (3, 1)}
    links = [Link(names[a], names[b], 10**10 if (a, b) in near else 10**8) for a in range(4) for b in range(4) if a != b]
    machine = Cluster("pairs", tuple(Device(name, "gpu", 10**9, 10**9, 10**9) for name in names), tuple(links))
    device = scotch(problem(cliques(4, 8, [(0, 1), (2, 3)]), machine), simulate, units_name="ops", seeds=1).device
    homes = [set(device[i * 8 : i * 8 + 8].tolist()) for i in range(4)]
    assert all(len(home) == 1 for home in homes) and len(set.union(*homes)) == 4
    pairs = {(min(homes[a] | homes[b]), max(homes[a] | homes[b])) for a, b in ((0, 1), (2, 3))}
    assert pairs == {(0, 2), (1, 3)}


def unequal() -> tuple[ComputationGraph, Cluster]:
    devices = (Device("cpu:0", "cpu", 10**9, 1, 1), Device("gpu:0", "gpu", 10**9, 1, 1), Device("gpu:1", "gpu", 10**9, 1, 1))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    ops = [op(f"o{i}") for i in range(60)]
    ops = [type(o)(o.name, o.kind, o.outputs, time_ns={"cpu": 30, "gpu:0": 30, "gpu:1": 10}) for o in ops]
    return ComputationGraph.from_ops("bag", ops, []), Cluster("c", devices, links)


def test_faster_devices_get_more_and_only_scotch_uses_the_cpu():
    posed = problem(*unequal())
    shares = [np.bincount(plan(posed, simulate, units_name="ops", seeds=1).device, minlength=3) for plan in (scotch, min_cut)]
    assert abs(shares[0] - [12, 12, 36]).max() <= 3
    assert shares[1][0] == 0 and abs(shares[1] - [0, 15, 45]).max() <= 3


def test_the_same_input_gives_the_same_mapping_whatever_came_before():
    posed = chains(4, 20, 4)
    first = scotch(posed, simulate).device
    scotch(chains(3, 7, 2), simulate, seeds=3)
    assert np.array_equal(first, scotch(posed, simulate).device)
    assert simulate(posed, [scotch(posed, simulate)])[0].step_time_ns == 20_000


def test_weights_of_any_size_stay_within_scotchs_integers():
    huge = [op(f"o{i}", 2**45 + i, 2**45) for i in range(9)]
    posed = problem(ComputationGraph.from_ops("huge", huge, [(i, 0, i + 1) for i in range(8)]), equal_gpus(3))
    assert set(np.bincount(scotch(posed, simulate, units_name="ops", seeds=1).device, minlength=3).tolist()) == {3}


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr(scotch_library, "LIBRARY", "libscotch-of-nowhere.so")
    monkeypatch.setattr(scotch_library, "_library", scotch_library._library.__wrapped__)
    one = Weighted(np.array([0, 1, 2]), np.array([1, 0]), np.array([1, 1]), np.array([1, 1]))
    with pytest.raises(MissingScotchError, match=r"apt-get install libscotch-7\.0"):
        mapped(one, one, 0)
