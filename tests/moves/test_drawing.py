"""Moves: legal, where the step waits, to any device."""

from collections import Counter

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.moves import drawing
from gnnplace.moves.drawing import NO_GUIDE, Chances, draw, guide, hash_of
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.schedules.critical_chain import chain_ns
from gnnplace.simulator.simulator import simulate

ONE_BLOCK = Chances(exchanges=0.0, walks=0.0)


def machine() -> Cluster:
    devices = (Device("cpu:0", "cpu", 10**6, 10**9, 10**9), *(Device(f"gpu:{i}", "gpu", 10**6, 10**9, 10**9) for i in range(2)))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    return Cluster("cpu-and-gpus", devices, links)


def on_machine(ops: list[Op]) -> Problem:
    return problem(ComputationGraph.from_ops("ops", ops, []), machine())


def drawn(posed: Problem, start: list[int], guided: np.ndarray = NO_GUIDE, count: int = 300, chances: Chances = drawing.CHANCES):
    device = np.array(start, dtype=np.int32)
    moves = draw(neighbourhood(posed), device, guided, np.random.default_rng(0), count, chances)
    found = [moves.after(move, device) for move in range(count)]
    assert all(hash_of(device) ^ change == hash_of(there) for change, there in zip(moves.change, found, strict=True))
    return found


def guide_of(posed: Problem, device: np.ndarray, *, timeline: bool = True) -> np.ndarray:
    around = neighbourhood(posed)
    (result,) = simulate(posed, [around.placement(device, "fifo")], timeline=timeline)
    waited = chain_ns(posed, device[around.closure.unit], result.timeline) if timeline else None
    return guide(around, device, result.peak_memory_bytes, waited)


def test_no_move_breaks_a_rule():
    ops = [op(f"o{i}", layer=f"l{i % 3}", time_step=i % 2, colocation="pair" if i in (0, 5) else None) for i in range(9)]
    ops[4] = Op("look-up", "Op", (Output(4),), allowed=("cpu",), layer="l1", time_step=0)
    posed = on_machine(ops)
    around = neighbourhood(posed)
    start = around.start(Placement(np.ones(9, dtype=np.int32)))
    found = {device.tobytes(): device for device in drawn(posed, start.tolist())}
    assert len(found) > 20
    assert all(check(posed, around.placement(device, "fifo")) is None for device in found.values())


def test_an_illegal_start_is_made_legal_and_a_legal_one_kept():
    posed = on_machine([Op("look-up", "Op", allowed=("cpu",)), op("a"), op("b", colocation="x"), op("c", colocation="x")])
    around = neighbourhood(posed)
    assert around.placement(around.start(Placement(np.array([1, 2, 1, 2], dtype=np.int32))), "fifo").device.tolist() == [0, 2, 2, 2]


def test_every_device_is_a_target_alike_and_a_split_block_may_be_gathered():
    posed = on_machine([op(f"o{i}", layer=f"l{i // 4}", time_step=0) for i in range(8)])
    found = Counter(tuple(device.tolist()) for device in drawn(posed, [1, 1, 1, 2, 0, 0, 0, 0], count=3000, chances=ONE_BLOCK))
    gathered = [found[(target,) * 4 + (0,) * 4] for target in range(3)]
    assert min(gathered) > 100 and max(gathered) < 1.5 * min(gathered)


def test_most_moves_go_to_where_a_neighbour_of_the_block_stands():
    found = Counter(tuple(device.tolist()) for device in drawn(chains(1, 2, 4), [0, 3], count=4000, chances=ONE_BLOCK))
    met, apart = found[3, 3] + found[0, 0], sum(found[device] for device in ((1, 3), (2, 3), (0, 1), (0, 2)))
    assert apart > 100 and met > 3 * apart


def test_a_neighbour_on_the_same_device_draws_nobody():
    blocks, generator = neighbourhood(chains(1, 3, 4)).blocks, np.random.default_rng(0)
    here = np.array([0, 0, 3], dtype=np.int32)
    assert {drawing._target(blocks, here, np.array([1]), generator, 1.0) for _ in range(50)} == {3}
    assert {drawing._target(blocks, here, np.array([0]), generator, 1.0) for _ in range(200)} == {0, 1, 2, 3}


def test_an_exchange_sends_each_block_to_the_other_ones_device():
    posed = on_machine([op("a"), op("b")])
    assert {tuple(device.tolist()) for device in drawn(posed, [1, 2], chances=Chances(exchanges=1.0, walks=0.0))} == {
        (1, 2),
        (2, 1),
    }  # twice the same one stays


def test_half_of_the_moves_are_on_the_critical_chain():
    posed = on_machine([op(f"o{i}", 1000 if i == 7 else 1) for i in range(100)])
    device = np.arange(100, dtype=np.int32) % 2 + 1
    device[7] = 0
    found = guide_of(posed, device)
    assert np.diff(found, prepend=0.0)[7] == pytest.approx(1.0)
    small = [np.flatnonzero(moved != device) for moved in drawn(posed, device.tolist(), found, chances=ONE_BLOCK)]
    assert np.mean([7 in changed for changed in small if len(changed)]) == pytest.approx(0.75, abs=0.1)  # and half of the rest by work


def test_where_memory_overflows_units_of_that_device_are_drawn_by_their_bytes():
    ops = [Op(f"o{i}", "Op", (Output(8),), time_ns={"gpu": 10}, persistent_bytes=size) for i, size in enumerate((92, 42, 392, 0))]
    posed = problem(ComputationGraph.from_ops("large", ops, []), equal_gpus(2, memory_bytes=120))
    everywhere = guide_of(posed, np.array([0, 0, 1, 1], dtype=np.int32))
    assert np.diff(everywhere, prepend=0.0) == pytest.approx(np.array([100, 50, 400, 8]) / 558)
    on_one = guide_of(posed, np.array([0, 1, 1, 0], dtype=np.int32), timeline=False)
    assert np.diff(on_one, prepend=0.0) == pytest.approx(np.array([0, 50, 400, 0]) / 450)


def test_without_a_timeline_and_with_room_there_is_no_guide():
    assert len(guide_of(chains(2, 3, 2), np.zeros(6, dtype=np.int32), timeline=False)) == 0
