"""Situations and features of moves: what the simulator says once a move is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op
from support.random_problems import tiny_problems
from support.slow import slow

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.moves import columns as names
from gnnplace.moves.columns import DRAWN, NAMES
from gnnplace.moves.drawing import NO_GUIDE, Drawn, draw
from gnnplace.moves.features import features, work
from gnnplace.moves.loads import MOST_IDLE
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.moves.situation import Situation, situation
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.schedules.critical_chain import chain_ns
from gnnplace.simulator.simulator import simulate


def seen(posed: Problem, device: np.ndarray) -> Situation | None:
    """The situation of a placement of units; None where it needs a link that is missing."""
    around = neighbourhood(posed)
    (result,) = simulate(posed, [around.placement(device, "critical-path")], timeline=True)
    return None if result.timeline is None else situation(posed, around, device, result)


def random_moves(count: int, moves: int = 20):
    """Problems with every feature but shared memories, and all links, a placement of each with its situation, and moves from there."""
    for seed, contended in tiny_problems(range(10 * count), 10**6, count, ops=3, linked=True):
        posed = Problem(contended.graph, contended.cluster, contended.time_ns)
        around, generator = neighbourhood(posed), np.random.default_rng(seed)
        device = around.start(Placement(generator.integers(0, posed.num_devices, posed.num_ops).astype(np.int32)))
        found = seen(posed, device)
        if found is not None and around.grains:
            yield posed, device, found, draw(around, device, NO_GUIDE, generator, moves)


def moving(unit: list[int], device: list[int]) -> Drawn:
    """One move of these units."""
    sizes = np.array([0, len(unit)]), np.array(unit), np.array(device, np.int32)
    return Drawn(*sizes, np.array([[0, -1]], np.int8), np.zeros(1, np.int8), np.ones(1, np.int8), np.zeros(1, np.uint64))


@pytest.mark.parametrize("count", [12, slow(60)])
def test_loads_and_channels_after_a_move_are_those_of_its_step(count):
    compared = 0
    for posed, device, found, drawn in random_moves(count):
        around = neighbourhood(posed)
        rows = features(around.terrain, found, drawn, work(around.terrain))
        results = simulate(posed, [around.placement(drawn.after(move, device), "critical-path") for move in range(len(rows))])
        for row, result, size in zip(rows, results, np.diff(drawn.ptr), strict=True):
            if size and result.step_time_ns is not None:
                busiest, most = (result.busy_ns / posed.cluster.streams).max(), result.occupied_ns.max(initial=0)
                assert row[names.LOAD_AFTER] * found.step_ns == pytest.approx(busiest, rel=1e-5)
                assert row[names.CHANNEL_AFTER] * found.step_ns == pytest.approx(most, rel=1e-5)
                compared += 1
    assert compared > 8 * count


def test_all_is_finite_and_a_move_that_changes_nothing_has_no_features():
    still = 0
    for posed, _, found, drawn in random_moves(10):
        terrain = neighbourhood(posed).terrain
        rows = features(terrain, found, drawn, work(terrain))
        assert rows.shape == (len(drawn.kind), len(NAMES) + len(DRAWN)) and np.isfinite(rows).all()
        changes = np.diff(drawn.ptr) > 0
        assert (rows[changes, names.WORK_AFTER] > 0).all() and not rows[~changes].any()
        still += int((~changes).sum())
    assert still > 0


def test_working_memory_is_left_as_if_new():
    posed, _, found, drawn = next(random_moves(5))
    terrain = neighbourhood(posed).terrain
    kept = work(terrain)
    first = features(terrain, found, drawn, kept)
    assert np.array_equal(features(terrain, found, drawn, kept), first)


def test_the_critical_chain_is_the_one_of_the_schedules():
    for posed, device, found, _ in random_moves(10):
        around = neighbourhood(posed)
        (result,) = simulate(posed, [around.placement(device, "critical-path")], timeline=True)
        waited = chain_ns(posed, device[around.closure.unit], result.timeline)
        assert np.array_equal(found.waited_ns, waited) and found.chain_load_ns.sum() <= found.waited_ns.sum() <= found.step_ns


def test_tails_reach_the_end_of_the_step():
    """On the critical chain nothing is free; elsewhere no op and what follows it end after the step."""
    for posed, _, found, _ in random_moves(10):
        ends = found.end_ns + found.tail_ns
        assert ends.max() == found.step_ns and (ends[found.chain_ns[:, 1] > 0] <= found.step_ns).all()
        assert found.busy_ns[:, -1].sum() <= (found.end_ns - found.start_ns).sum() + 1e-6 * found.step_ns, posed.graph.name


@pytest.mark.parametrize(("unit", "target"), [([1], [1]), ([1, 2], [1, 1]), ([0, 1, 2, 3], [1, 1, 1, 1]), ([2, 3], [1, 1])])
def test_the_longest_path_of_a_chain_is_its_step(unit, target):
    """Nothing waits in a single chain, so that the estimate is exact."""
    posed = chains(1, 4, 2)
    device = np.zeros(4, np.int32)
    found, around = seen(posed, device), neighbourhood(posed)
    drawn = moving(unit, target)
    (row,) = features(around.terrain, found, drawn, work(around.terrain))
    (result,) = simulate(posed, [around.placement(drawn.after(0, device), "critical-path")])
    assert row[names.PATH_AFTER] * found.step_ns == pytest.approx(result.step_time_ns)
    assert row[names.CHAIN_MORE] * found.step_ns == pytest.approx(result.step_time_ns - found.step_ns)


def test_an_op_that_leaves_a_queue_shortens_the_chain_by_its_time():
    posed = problem(ComputationGraph.from_ops("queue", [op("a", 4), op("b", 6), op("c", 5)], []), equal_gpus(2))
    found, around = seen(posed, np.zeros(3, np.int32)), neighbourhood(posed)
    assert found.step_ns == 15
    first = int(found.start_ns.argmin())
    (row,) = features(around.terrain, found, moving([first], [1]), work(around.terrain))
    lasts = found.end_ns[first]
    assert row[names.CHAIN_QUEUE] == pytest.approx(-lasts / 15) and row[names.LOAD_AFTER] == pytest.approx((15 - lasts) / 15)
    assert row[names.IDLE_TARGET] == 1 and row[names.IDLE_BY_WORK] == pytest.approx(min(MOST_IDLE, 15 / lasts), rel=0.5)


def test_memory_that_overflows_is_seen_before_and_after():
    ops = [op(f"o{i}", 10, persistent_bytes=60) for i in range(2)]
    posed = problem(ComputationGraph.from_ops("large", ops, []), equal_gpus(2, memory_bytes=100))
    found, around = seen(posed, np.zeros(2, np.int32)), neighbourhood(posed)
    (row,) = features(around.terrain, found, moving([0], [1]), work(around.terrain))
    assert row[names.OVERFLOW_BEFORE] > 0 and row[names.OVERFLOW_BEFORE] + row[names.OVERFLOW_MORE] == pytest.approx(0)
    assert row[names.MEMORY_LEFT] > 0


def test_a_device_without_memory_has_a_share_of_it_too():
    """As one of a byte has, whatever stands there."""
    rows = []
    for room in (0, 1):
        gpus = equal_gpus(2, memory_bytes=10**6)
        small = replace(gpus, devices=(replace(gpus.devices[0], memory_bytes=room), gpus.devices[1]))
        posed = problem(ComputationGraph.from_ops("pair", [op("a", 5, 3), op("b", 5, 3)], [(0, 0, 1)]), small)
        found = seen(posed, np.array([1, 1], np.int32))
        assert found is not None
        around = neighbourhood(posed)
        rows.append(features(around.terrain, found, moving([0], [0]), work(around.terrain)))
    assert np.isfinite(rows[0]).all() and rows[0][0, NAMES.index("overflow more")] == 3
    assert rows[1][0, NAMES.index("overflow more")] == 2
