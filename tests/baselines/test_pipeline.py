"""Contiguous splits: the best of all contiguous ones, memory, links and the row that layers stand in."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op
from support.random_problems import random_case

from gnnplace.baselines.pipeline import StageLoads, cut_loads, pipeline, rows, split, sums_of_row
from gnnplace.baselines.single import single_gpu
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import check
from gnnplace.problems import Problem
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate


def stages(work: list[float], cut: list[float], held: list[float] | None = None, room: float = np.inf, speed=(1.0, 1.0)) -> StageLoads:
    """Stages on devices of these speeds; `cut[c]` is the transfer over the cut before place c + 1."""
    before = np.concatenate([[0.0], np.cumsum(work)])
    between = np.zeros((len(speed), len(work) + 1))
    between[1:, 1:-1] = cut
    holds = np.concatenate([[0.0], np.cumsum(held or [0.0] * len(work))])
    return StageLoads(before[None, :] / np.array(speed)[:, None], np.tile(holds, (len(speed), 1)), np.full(len(speed), room), between)


def bounds(found: list[np.ndarray]) -> list[list[int]]:
    return [row.tolist() for row in found]


def test_the_slowest_stage_is_as_fast_as_may_be_by_hand():
    assert bounds(split(stages([3, 1, 1, 1, 2], [0, 0, 0, 0]))) == [[0, 5], [0, 2, 5]]  # 4 | 4
    assert bounds(split(stages([3, 1, 1, 1, 2], [1, 6, 2, 1])))[1] == [0, 1, 5]  # 3 | 5: 4 | 4 has a transfer of 6
    assert bounds(split(stages([3, 1, 1, 1, 2], [2, 6, 1, 1])))[1] == [0, 3, 5]  # 5 | 3, as slow, with less to send
    assert bounds(split(stages([1, 1, 1, 1], [0, 0, 0], speed=(3.0, 1.0))))[1] == [0, 3, 4]


def test_memory_bounds_a_stage_by_hand():
    assert bounds(split(stages([1, 1, 1, 9], [0, 0, 0], held=[4, 4, 4, 1], room=9))) == [[0, 2, 4]]  # 12 of 9 in [0, 3]: no such stage
    assert bounds(split(stages([1, 1], [0], held=[4, 10], room=9))) == []


@pytest.mark.parametrize("seed", range(30))
def test_no_contiguous_split_is_better(seed: int):
    generator = np.random.default_rng(seed)
    length, count = int(generator.integers(1, 8)), int(generator.integers(1, 5))
    load, cut = generator.integers(1, 9, (count, length)).cumsum(axis=1), generator.integers(0, 12, (count, length + 1)).astype(float)
    cut[0] = 0.0
    held = np.concatenate([[0.0], generator.integers(0, 5, length).cumsum()])
    given = StageLoads(
        np.concatenate([np.zeros((count, 1)), load], axis=1), np.tile(held, (count, 1)), generator.integers(4, 15, count).astype(float), cut
    )

    def slowest(cuts: tuple[int, ...]) -> float:
        runs = list(pairwise(cuts))
        if any(held[end] - held[begin] > given.room[s] for s, (begin, end) in enumerate(runs)):
            return np.inf
        return max(max(given.load[s, end] - given.load[s, begin], cut[s, begin]) for s, (begin, end) in enumerate(runs))

    every = [[(0, *inner, length) for inner in combinations(range(1, length), k)] for k in range(count)]
    best = [min(map(slowest, splits)) for splits in every if splits]
    assert [slowest(tuple(found.tolist())) for found in split(given)] == [value for value in best if np.isfinite(value)]


def test_what_crosses_a_cut_is_sent_once_each_way_by_hand():
    """a -> b, c (one output, 5 bytes), c -> a' (3 bytes, back to a's place), and a control edge from a to c."""
    ops = [op("a", size=5), op("b"), op("c", size=3), op("a'")]
    posed = problem(ComputationGraph.from_ops("g", ops, [(0, 0, 1), (0, 0, 2), (2, 0, 3), (0, -1, 2)]), equal_gpus(2))
    row = sums_of_row(posed, np.array([0, 1, 2, 0]))
    assert row.send_ns[:, :, 0].tolist() == [[0, 5, 5, 0], [0, 3, 3, 0]]
    assert row.crosses.tolist() == [[0, 2, 2, 0], [0, 1, 1, 0]]
    assert cut_loads(posed, row, np.array([0, 1])).tolist() == [[0, 0, 0, 0], [0, 5, 5, 0]]  # the slower way
    one_way = Cluster("one-way", posed.cluster.devices, posed.cluster.links[1:])
    assert cut_loads(problem(posed.graph, one_way), row, np.array([0, 1]))[1].tolist() == [0, np.inf, np.inf, 0]
    assert row.work_ns[:, 0].tolist() == [0, 20, 30, 40] and row.outputs.tolist() == [0, 5, 5, 8]


def recurrent(layers: int, steps: int, size: int = 1, persistent: int = 0, blocks: bool = True, named: bool = True) -> ComputationGraph:
    """`layers` x `steps` cells, each after the one below and the one before; every layer has a weight and its gradient and update."""
    ops: list[Op] = []
    edges: list[tuple[int, int, int]] = []
    for i in range(layers):
        common = {"layer": f"layer_{i}" if named else None, "block": i if blocks else None}
        weight = len(ops)
        ops.append(op(f"{i}/weight", 1, 8, phase="forward", persistent_bytes=persistent, colocation=f"w{i}", **common))
        for t in range(steps):
            below, before = weight - steps - 3 + 1 + t, len(ops) - 1
            ops.append(op(f"{i}/{t}", 100, size, phase="forward", time_step=t, **common))
            edges += [(weight, 0, weight + 1 + t)] + ([(below, 0, weight + 1 + t)] if i else []) + ([(before, 0, before + 1)] if t else [])
        ops.append(op(f"{i}/gradient", 100, 8, phase="backward_weight", **common))
        ops.append(Op(f"{i}/update", "Op", (), time_ns={"gpu": 1}, phase="update", colocation=f"w{i}", **common))
        edges += [(weight + steps, 0, weight + steps + 1), (weight + steps + 1, 0, weight + steps + 2), (weight, 0, weight + steps + 2)]
    return ComputationGraph.from_ops("recurrent", ops, edges)


@pytest.mark.parametrize(("blocks", "named"), [(True, True), (False, True), (True, False)])
def test_layers_stand_whole_and_in_a_row_on_all_devices(blocks: bool, named: bool):
    graph = recurrent(6, 20, blocks=blocks, named=named)
    device = pipeline(problem(graph, equal_gpus(3)), simulate).device.reshape(6, -1)
    assert (device == device[:, :1]).all()
    assert device[:, 0].tolist() in ([0, 0, 1, 1, 2, 2], [2, 2, 1, 1, 0, 0])


def test_a_row_of_units_where_there_are_no_layers():
    """A chain gains nothing from a second device, but its memory doesn't fit one: then it is cut in the middle."""
    ops = [op(f"o{i}", 10, 1, persistent_bytes=100) for i in range(10)]
    graph = ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(9)])
    assert len(set(pipeline(problem(graph, equal_gpus(2)), simulate).device.tolist())) == 1
    device = pipeline(problem(graph, equal_gpus(2, memory_bytes=600)), simulate).device
    assert device.tolist() in ([0] * 5 + [1] * 5, [1] * 5 + [0] * 5)


def test_memory_is_evened_out_where_all_that_stages_produce_fits_nowhere():
    """Results of 800, 800 and 300 bytes stay to the end; the last place makes 5 tensors of 300, of which 2 live at a time.

    Time alone cuts before the last place: 1,900 bytes of 1,700. With all they produce, no two stages fit; the best of them does in truth.
    """
    held = (800, 800, 300)
    ops = [
        Op(f"o{i}", "Op", (Output(size, is_result=True),), time_ns={"gpu": 10 + 990 * (i > 1)}, layer=f"l{i}")
        for i, size in enumerate(held)
    ]
    ops += [op(f"o{i}", 300, 300, layer="l3") for i in range(3, 8)]
    posed = problem(ComputationGraph.from_ops("full", ops, [(i, 0, i + 1) for i in range(7)]), equal_gpus(2, memory_bytes=1700))
    placed = pipeline(posed, simulate)
    assert simulate(posed, [placed])[0].infeasible is None
    assert placed.device.tolist() in ([0] * 2 + [1] * 6, [1] * 2 + [0] * 6)


def test_what_is_produced_and_freed_again_does_not_keep_a_stage_from_its_place():
    """Three layers of 6 ops: 2400, 1200 and 1200 ns. The last two make 1,800 bytes each, of which 600 live at a time.

    Their 3,600 on one device are no reason not to cut where time says.
    """
    ops = [op(f"{i}/{k}", 200 if i else 400, 300 if i else 10, layer=f"l{i}") for i in range(3) for k in range(6)]
    edges = [(6 * i + k, 0, 6 * i + k + 1) for i in range(3) for k in range(5)]
    posed = problem(ComputationGraph.from_ops("freed", ops, edges), equal_gpus(2, memory_bytes=1300))
    assert simulate(posed, [pipeline(posed, simulate)])[0].step_time_ns == 2400


def test_rows_are_of_blocks_of_their_layers_and_of_layers_alone_by_hand():
    """Two blocks of two layers; levels run 0, 1, 2, 3 but block 1 holds the first and the last. A gradient stands with its layer."""
    ops = [op(f"o{i}", layer=f"l{i}", block=(1, 0, 0, 1)[i], phase="forward") for i in range(4)]
    ops += [op("o1/gradient", layer="l1", block=0, phase="backward_data")]
    posed = problem(ComputationGraph.from_ops("g", ops, [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4)]), equal_gpus(2))
    assert [row.tolist() for row in rows(posed)] == [[1, 0, 0, 1, 0], [2, 0, 1, 3, 0], [0, 1, 2, 3, 1]]


def test_faster_devices_get_more_layers():
    devices = tuple(Device(f"gpu:{i}", "gpu", 10**9, 1, 1) for i in range(2))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    graph = recurrent(8, 40, size=0)
    ops_ns = np.stack([np.full(graph.num_ops, 300), np.full(graph.num_ops, 100)], axis=1)
    posed = Problem(graph, Cluster("unequal", devices, links), ops_ns)
    device = pipeline(posed, simulate).device.reshape(8, -1)[:, 0]
    assert np.bincount(device).tolist() == [2, 6]


def test_neighbours_in_the_row_are_linked():
    """gpu:0 and gpu:1 have no link; every layer needs the one before it."""
    devices = tuple(Device(f"gpu:{i}", "gpu", 10**9, 1, 1) for i in range(3))
    links = tuple(Link(f"gpu:{a}", f"gpu:{b}", 10**9) for a, b in ((0, 2), (2, 0), (1, 2), (2, 1)))
    posed = problem(recurrent(6, 20), Cluster("gap", devices, links))
    placed = pipeline(posed, simulate)
    assert simulate(posed, [placed])[0].infeasible is None and len(set(placed.device.tolist())) == 2


def test_never_worse_than_a_single_accelerator_and_legal_on_random_problems():
    posed = [random_case(seed).problem() for seed in range(40)]
    posed = [one for one in posed if one.allowed.any(axis=1).all() and one.graph.colocation.index.max() == -1]
    assert len(posed) > 15
    for one in posed:
        placed, single = pipeline(one, simulate), single_gpu(one, simulate)
        found, alone = simulate(one, [placed, single])
        assert found.infeasible is None or check(one, placed) is not None or found.infeasible.startswith("memory")
        assert score(one, found) <= score(one, alone)


def test_the_schedule_is_the_one_that_was_asked_for():
    assert pipeline(chains(2, 3, 2), simulate, schedule="fifo").schedule == "fifo"
