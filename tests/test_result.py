"""The metrics of a step, worked out by hand; and that they agree with the timeline of any step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op, step
from support.random_problems import random_case
from support.slow import slow

from gnnplace.cluster import NO_CHANNEL, Cluster, Device
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import StepResult, metrics
from gnnplace.simulator.simulator import simulate

OPS, EDGES = [op("a", 5, 10), op("x", 1), op("y", 1), op("r", 4)], [(0, 0, 1), (0, 0, 2)]


def idle(posed: Problem, result: StepResult) -> list[int]:
    found = metrics(posed.cluster, result, 1).idle_ns
    assert found is not None
    return found.tolist()


def test_what_is_left_of_the_step_is_idle_and_the_busiest_channel_is_the_share():
    posed = made(OPS, EDGES, gpus(link(0, 1, overhead_ns=2, latency_ns=3), link(0, 2)))
    result = step(posed, 0, 1, 2, 0)  # a 0-5, r 5-9; to gpu:1 5-17, x 20-21; to gpu:2 17-27, y 27-28
    assert result.step_time_ns == 28 and result.occupied_ns is not None and result.occupied_ns.tolist() == [22]
    found = metrics(posed.cluster, result, 7)
    assert (found.communication_share, found.room) == (22 / 28, 1 - 7 / 28)
    assert idle(posed, result) == [28 - 9, 27, 27]
    apart = made(OPS, EDGES, gpus(link(0, 1, overhead_ns=2), link(0, 2, channel="other")))
    result = step(apart, 0, 1, 2, 0)  # both 5-17 and 5-15
    assert result.step_time_ns == 18 and result.occupied_ns is not None and result.occupied_ns.tolist() == [12, 10]
    assert metrics(apart.cluster, result, 1).communication_share == 12 / 18


def test_a_device_that_copies_by_itself_is_not_idle_meanwhile():
    sends = made(OPS, EDGES, gpus(link(0, 1, channel="gpu:0"), link(0, 2, channel="gpu:0")))
    result = step(sends, 0, 1, 2, 0)  # a 0-5, sends 5-15 and 15-25, r 25-29
    assert result.step_time_ns == 29 and idle(sends, result) == [0, 28, 28]
    receives = made(OPS[:2], EDGES[:1], gpus(link(0, 1, receive_channel="gpu:1")))
    result = step(receives, 0, 1)  # a 0-5, sent 5-15 by an engine, received 15-25, x 25-26
    assert result.step_time_ns == 26 and idle(receives, result) == [21, 26 - 10 - 1, 26]
    assert metrics(receives.cluster, result, 1).communication_share == 10 / 26


def test_streams_share_the_load_of_their_device():
    cluster = gpus(streams=2)
    posed = made([op("a", 6), op("b", 3), op("c", 4)], [], cluster)
    result = step(posed, 0, 0, 1)
    assert result.step_time_ns == 6 and idle(posed, result) == [1, 4, 6]  # 9 of 12, 4 of 12 and nothing, by two streams
    two = Cluster("two", tuple(replace(device, streams=index + 1) for index, device in enumerate(cluster.devices[:2])), ())
    unequal = made([op("a", 4), op("b", 4), op("c", 2)], [], two)
    assert metrics(two, step(unequal, 0, 1, 1), 1).load_balance == (4 + 3) / 2 / 4


DEVICES = (Device("cpu:0", "cpu", 10**6, 10**9, 10**9), *gpus().devices[:2])
BESIDE_A_CPU = [Op(name, "Op", time_ns={"cpu": cpu, "gpu": gpu}) for name, cpu, gpu in (("a", 60, 20), ("b", 10, 30), ("c", 1, 9))]


@pytest.mark.parametrize(
    ("device", "balance"),
    [
        ((1, 2, 2), (20 + 39) / 2 / 39),  # nobody asks the CPU
        ((1, 2, 0), (20 + 30) / 2 / 30),  # hardly anybody
        ((0, 1, 2), (30 + 9) / 2 / 60),  # it holds up the others
        ((0, 0, 0), 0.0),
        ((1, 1, 1), 0.5),
    ],
)
def test_a_cpu_beside_accelerators_counts_where_it_is_the_busiest(device, balance):
    posed = problem(ComputationGraph.from_ops("three", BESIDE_A_CPU, []), Cluster("mixed", DEVICES, ()))
    (result,) = simulate(posed, [Placement(np.array(device, np.int32))])
    assert metrics(posed.cluster, result, 1).load_balance == balance


def test_cpus_alone_are_devices_like_any():
    cpus = Cluster("cpus", (DEVICES[0], replace(DEVICES[0], name="cpu:1")), ())
    posed = problem(ComputationGraph.from_ops("three", BESIDE_A_CPU, []), cpus)
    (result,) = simulate(posed, [Placement(np.array([0, 1, 1], np.int32))])
    assert metrics(cpus, result, 1).load_balance == (60 + 11) / 2 / 60


def test_what_is_not_known_is_none():
    pair = made(OPS[:2], EDGES[:1], gpus(link(1, 0)))
    unlinked = metrics(pair.cluster, step(pair, 0, 1), 1)
    assert unlinked[1:] == (None, None, None) and unlinked.load_balance == pytest.approx((5 + 1) / 3 / 5)
    small = made(OPS[:1], [], gpus(memory_bytes=7))
    overflow = step(small, 0)
    assert overflow.infeasible and metrics(small.cluster, overflow, 1).room is None and idle(small, overflow) == [0, 5, 5]
    measured = replace(step(made(OPS[:1], [], gpus()), 0), occupied_ns=None)
    assert metrics(gpus(), measured, 4) == (pytest.approx(1 / 3), None, None, 1 - 4 / 5)
    never = replace(measured, step_time_ns=None, infeasible="crash", busy_ns=np.zeros(3, dtype=np.int64))
    assert metrics(gpus(), never, 4) == (None, None, None, None)


@pytest.mark.parametrize("seeds", [range(40), *(slow(range(first, first + 90)) for first in range(40, 400, 90))], ids=str)
def test_figures_are_those_of_the_timeline(seeds: range):
    seen = 0
    for seed in seeds:
        case = random_case(seed)
        posed = case.problem()
        (result,) = simulate(posed, [case.placement()], timeline=True)
        if result.timeline is None or result.step_time_ns is None or result.occupied_ns is None:
            continue
        occupied, running = _occupations(posed, case.device, result)
        found = metrics(posed.cluster, result, 1)
        assert result.occupied_ns.tolist() == [sum(end - start for start, end in spans) for spans in occupied]
        busiest = max((_covered(spans) for spans in occupied), default=0)
        assert found.communication_share == busiest / result.step_time_ns
        for device, spans in enumerate(running):
            if posed.cluster.streams[device] == 1:  # nothing overlaps there
                assert idle(posed, result)[device] == result.step_time_ns - _covered(spans)
        assert all(0 <= value <= result.step_time_ns for value in idle(posed, result))
        assert found.load_balance is not None and 0 <= found.load_balance <= 1
        seen += result.transfers > 0
    assert seen >= len(seeds) / 5


Spans = list[tuple[int, int]]


def _occupations(posed: Problem, device: list[int], result: StepResult) -> tuple[list[Spans], list[Spans]]:
    """When each channel carries something, and when each device runs an op or copies by itself."""
    timeline, cluster = result.timeline, posed.cluster
    assert timeline is not None
    channels: list[Spans] = [[] for _ in range(cluster.num_channels)]
    devices: list[Spans] = [[] for _ in cluster.devices]
    for start, end, here in zip(timeline.start_ns.tolist(), timeline.end_ns.tolist(), device, strict=True):
        devices[here].append((start, end))
    columns = (timeline.transfer_src, timeline.transfer_dst, timeline.transfer_start_ns, timeline.transfer_end_ns)
    received = (timeline.receive_start_ns, timeline.receive_end_ns)
    for src, dst, start, end, begin, finish in zip(*(column.tolist() for column in (*columns, *received)), strict=True):
        link_number = cluster.link_index[src, dst]
        channels[cluster.link_channel[link_number]].append((start, end))
        if begin >= 0:
            channels[cluster.link_receive_channel[link_number]].append((begin, finish))
    for here, channel in enumerate(cluster.device_channel.tolist()):
        if channel != NO_CHANNEL:
            devices[here] += channels[channel]
    return channels, devices


def _covered(spans: Spans) -> int:
    """The length of what any of them covers."""
    total, until = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total
