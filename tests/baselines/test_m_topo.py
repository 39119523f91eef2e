"""m-TOPO: caps by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import equal_gpus, op

from gnnplace.baselines.baechi import m_topo
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.simulator.simulator import simulate


def placed(ops: list[Op], edges: list[tuple[int, int, int]], machine: Cluster) -> list[int]:
    return m_topo(problem(ComputationGraph.from_ops("g", ops, edges), machine), simulate, units_name="ops").device.tolist()


def test_a_device_is_filled_to_a_share_and_the_largest():
    """Chains of 10 bytes: 40 / 2 + 10 = 30 a device; and with one of 25: 55 / 2 + 25 = 52, which the first four don't exceed."""
    edges = [(0, 0, 1), (1, 0, 2), (2, 0, 3)]
    assert placed([op(f"o{i}", 10, 10) for i in range(4)], edges, equal_gpus(2)) == [0, 0, 0, 1]
    assert placed([op("o0", 10, 25), *(op(f"o{i}", 10, 10) for i in (1, 2, 3))], edges, equal_gpus(2)) == [0, 0, 0, 1]
    assert placed([op(f"o{i}", 10, 10) for i in range(4)], edges, equal_gpus(3)) == [0, 0, 1, 1]


def test_the_order_is_topological_not_that_of_the_document():
    assert placed([op(f"o{i}", 10, 10) for i in range(4)], [(3, 0, 2), (2, 0, 1), (1, 0, 0)], equal_gpus(2)) == [1, 0, 0, 0]


def test_variables_come_with_their_consumers():
    """Four of 100: 400 / 2 + 100 = 300 a device; by the graph's own order all four uses would follow the last variable to gpu:1."""
    ops = [Op(f"v{i}", "Variable", (Output(0),), kernel=False, persistent_bytes=100) for i in range(4)]
    ops += [op(f"use{i}") for i in range(4)]
    edges = [(i, 0, 4 + i) for i in range(4)] + [(4 + i, 0, 5 + i) for i in range(3)]
    assert placed(ops, edges, equal_gpus(2)) == [0, 0, 0, 1] * 2


@pytest.mark.parametrize(
    ("kept", "devices", "expected"), [([60, 60, 60], 3, [0, 1, 2]), ([60, 60, 30], 2, [0, 1, 1]), ([60, 80, 30], 2, [0, 1, 0])]
)
def test_devices_are_not_filled_beyond_their_memory(kept: list[int], devices: int, expected: list[int]):
    """100 bytes each, below the caps of 120, 135 and 165; what is full stays behind, but 30 finds no room behind 80 and goes back."""
    ops = [op(f"o{i}", persistent_bytes=size) for i, size in enumerate(kept)]
    assert placed(ops, [(i, 0, i + 1) for i in range(len(kept) - 1)], equal_gpus(devices, memory_bytes=100)) == expected


def test_cpus_are_not_filled_and_take_no_room_from_others():
    devices = (Device("cpu:0", "cpu", 10**9, 10**9, 10**9), *(Device(f"gpu:{i}", "gpu", 10**9, 10**12, 10**12) for i in range(2)))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    ops = [op("o0", 10, 10), op("o1", 10, 10), Op("look-up", "Op", (Output(10),), allowed=("cpu",)), op("o3", 10, 10)]
    edges = [(0, 0, 1), (1, 0, 2), (2, 0, 3)]
    assert np.array_equal(placed(ops, edges, Cluster("mixed", devices, links)), [1, 1, 0, 1])
