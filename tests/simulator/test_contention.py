"""Devices of one memory: an op that starts while another of them runs lasts its contended time; worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op, starts, step

from gnnplace.cluster import NO_MEMORY, Cluster, ClusterError
from gnnplace.costs import roofline
from gnnplace.graph import CONTROL, ComputationGraph, Op
from gnnplace.problems import Problem


def sharing(*names: str | None) -> Cluster:
    """Three GPUs with these memories, linked all, of no latency."""
    cluster = gpus(*(link(src, dst) for src in range(3) for dst in range(3) if src != dst))
    devices = tuple(replace(device, memory=name) for device, name in zip(cluster.devices, names, strict=True))
    return replace(cluster, devices=devices)


def slowed(problem: Problem, times: int = 2) -> Problem:
    """Every op lasts so many times as long beside another."""
    return Problem(problem.graph, problem.cluster, problem.time_ns, times * problem.time_ns)


OPS = [op("a", 10), op("b", 4), op("c", 4), op("d", 4)]
EDGES = [(1, CONTROL, 2), (2, CONTROL, 3)]


def test_an_op_that_starts_beside_another_takes_longer_to_its_end():
    # a starts first, alone: 0-10. b 0-8 and c 8-16 start beside it; d, at 16, does not
    result = step(slowed(made(OPS, EDGES, sharing("host", "host", None))), 0, 1, 1, 1)
    assert (starts(result), result.step_time_ns) == ([0, 0, 8, 16], 20)
    assert result.busy_ns.tolist() == [10, 20, 0]
    assert result.timeline is not None and result.timeline.end_ns.tolist() == [10, 8, 16, 20]


@pytest.mark.parametrize("names", [("host", None, None), ("host", "other", "host"), (None, None, None)])
def test_devices_of_other_memories_are_no_matter(names):
    result = step(slowed(made(OPS, EDGES, sharing(*names))), 0, 1, 1, 1)
    assert (starts(result), result.busy_ns.tolist()) == ([0, 0, 4, 8], [10, 12, 0])


def test_an_op_that_ends_as_another_starts_slows_nothing():
    # a 0-10 and b 0-10 end together, c starts at 10 alone, d beside it
    ops, edges = [op("a", 10), op("b", 5), op("c", 3), op("d", 3)], [(0, CONTROL, 2), (1, CONTROL, 3)]
    result = step(slowed(made(ops, edges, sharing("host", "host", None))), 0, 1, 0, 1)
    assert (starts(result), result.step_time_ns) == ([0, 0, 10, 10], 16)


def test_streams_of_one_device_do_not_contend():
    cluster = sharing("host", "host", None)
    two = replace(cluster, devices=tuple(replace(device, streams=2) for device in cluster.devices))
    assert starts(step(slowed(made(OPS, EDGES, two)), 0, 0, 0, 0)) == [0, 0, 4, 8]


def test_the_roofline_of_a_contended_memory():
    cluster = sharing("host", "host", None)
    fast = tuple(replace(device, memory_bytes_per_s=10**9, contended_memory_bytes_per_s=5 * 10**8) for device in cluster.devices)
    graph = ComputationGraph.from_ops("traffic", [Op("read", "Op", bytes_accessed=1000), Op("given", "Op", time_ns={"gpu": 7})], [])
    found = roofline.problem(graph, replace(cluster, devices=(*fast[:2], cluster.devices[2])))
    assert found.time_ns.tolist() == [[1000, 1000, 1], [7, 7, 7]]
    assert found.contended_ns is not None and found.contended_ns.tolist() == [[2000, 2000, 1], [7, 7, 7]]
    assert roofline.problem(graph, cluster).contended_ns is None
    assert found.cluster.device_memory.tolist() == [0, 0, NO_MEMORY]


def test_a_contended_memory_is_no_faster():
    device = replace(sharing(None, None, None).devices[0], memory_bytes_per_s=10, contended_memory_bytes_per_s=11)
    with pytest.raises(ClusterError, match=r"devices\[0\]\.contended_memory_bytes_per_s: 11 is not between 1 and 10"):
        Cluster("one", (device,), ())
    with pytest.raises(AssertionError):
        problem = made(OPS, EDGES, sharing(None, None, None))
        Problem(problem.graph, problem.cluster, problem.time_ns, np.maximum(1, problem.time_ns - 1))
