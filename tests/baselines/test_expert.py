"""The expert puts layers on accelerators as people do, with everything that belongs to a layer."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import equal_gpus

from gnnplace.baselines.expert import _runs, expert
from gnnplace.costs.roofline import problem
from gnnplace.graph import NONE, ComputationGraph, Op, Output
from gnnplace.simulator.simulator import simulate


def layered(blocks: int, kind: str = "matmul") -> ComputationGraph:
    """embedding -> blocks -> head forward, then backward with weight gradients and updates; the ends have a layer but no block."""
    names = ["embedding", *(f"block_{i}" for i in range(blocks)), "head"]
    ops: list[Op] = []
    edges: list[tuple[int, int, int]] = []

    def add(name: str, layer: str, phase: str, inputs: list[int], **columns) -> int:
        block = int(layer.split("_")[1]) if "_" in layer else None
        op = Op(name, "Op", (Output(1000),), flops=10**6, layer=layer, phase=phase, block=block, canonical_kind=kind, **columns)
        ops.append(op)
        edges.extend((source, 0, len(ops) - 1) for source in inputs)
        return len(ops) - 1

    weight = {name: add(f"{name}/weight", name, "forward", [], persistent_bytes=1000, colocation=name) for name in names}
    x, forward = [], {}
    for name in names:
        forward[name] = add(f"{name}/forward", name, "forward", [*x, weight[name]])
        x = [forward[name]]
    for name in reversed(names):
        gradient = add(f"{name}/weight_gradient", name, "backward_weight", [*x, forward[name]])
        x = [add(f"{name}/data_gradient", name, "backward_data", [*x, weight[name]])]
        add(f"{name}/update", name, "update", [gradient, weight[name]], colocation=name)
    return ComputationGraph.from_ops("layered", ops, edges)


def device_of_layers(graph: ComputationGraph, device: np.ndarray) -> dict[str, set[int]]:
    return {layer: set(device[graph.layer.index == index].tolist()) for index, layer in enumerate(graph.layer.values)}


@pytest.mark.parametrize("gpus", [2, 4])
def test_contiguous_blocks_on_all_gpus_with_the_ends_at_the_ends(gpus: int):
    graph = layered(8)
    placed = expert(problem(graph, equal_gpus(gpus)), simulate)
    found = device_of_layers(graph, placed.device)
    assert all(len(devices) == 1 for devices in found.values())
    order = [found[name].pop() for name in ["embedding", *(f"block_{i}" for i in range(8)), "head"]]
    assert order == sorted(order) and set(order) == set(range(gpus))


def test_one_layer_a_gpu_where_there_are_as_many():
    graph = layered(2)
    found = device_of_layers(graph, expert(problem(graph, equal_gpus(4)), simulate).device)
    assert found == {"embedding": {0}, "block_0": {0}, "block_1": {1}, "head": {1}}


@pytest.mark.parametrize("graph", [layered(8, kind="conv"), layered(1)], ids=["convolutions", "one block"])
def test_convolutions_and_graphs_without_blocks_stay_on_one_gpu(graph: ComputationGraph):
    assert len(set(expert(problem(graph, equal_gpus(4)), simulate).device.tolist())) == 1


def test_runs_are_the_best_contiguous_split_by_hand():
    assert _runs(np.array([3.0, 1.0, 1.0, 1.0, 2.0]), np.ones(2)).tolist() == [0, 0, 1, 1, 1]
    assert _runs(np.array([1.0, 1.0, 1.0, 1.0]), np.array([3.0, 1.0])).tolist() == [0, 0, 0, 1]
    assert _runs(np.array([1.0, 1.0, 1.0, 4.0]), np.ones(4)).tolist() == [0, 1, 2, 3]  # not three of them on one
    assert _runs(np.array([2.0, 1.0, 1.0, 2.0, 6.0]), np.ones(3)).tolist() == [0, 0, 1, 1, 2]
    assert _runs(np.array([5.0]), np.ones(3)).tolist()[0] in range(3)


def test_what_touches_no_block_stands_with_the_first():
    graph = layered(2)
    ops = [Op("alone", "Op")]
    alone = ComputationGraph.from_ops("g", [Op("a", "Op", block=0), Op("b", "Op", block=1), *ops], [])
    assert graph.block.max() == 1 and alone.block.tolist() == [0, 1, NONE]
    placed = expert(problem(alone, equal_gpus(2)), simulate)
    assert placed.device[2] == placed.device[0] != placed.device[1]


def test_each_tower_has_its_own_gpu():
    """Two towers of three blocks; their forward ops meet only in the loss."""
    ops = [
        Op(f"{tower}/{i}", "Op", (Output(8),), flops=10**6, block=i, layer=f"{tower}.layers.{i}", phase="forward")
        for tower in ("user", "item") for i in range(3)
    ]  # fmt: skip
    ops += [Op(f"{tower}/out", "Op", (Output(8),), layer=f"{tower}.out", phase="forward") for tower in ("user", "item")]
    ops += [Op("loss", "Op", (Output(4),), layer="loss", phase="forward")]
    edges = [(i, 0, i + 1) for i in (0, 1, 3, 4)] + [(2, 0, 6), (5, 0, 7), (6, 0, 8), (7, 0, 8)]
    placed = expert(problem(ComputationGraph.from_ops("towers", ops, edges), equal_gpus(2)), simulate)
    user, item = {0, 1, 2, 6}, {3, 4, 5, 7}
    sides = [{placed.device[i] for i in tower} for tower in (user, item)]
    assert sorted(map(len, sides)) == [1, 1] and sides[0] != sides[1]


@pytest.mark.parametrize("flops", [0, 10**6])
def test_a_head_stands_last_however_early_its_weights_are_turned(flops: int):
    """Views of weights and scalars that lie before everything else say nothing about where a layer's work is."""
    ops = [Op(f"blocks/{i}", "Op", (Output(8),), flops=10**6, block=i, layer=f"blocks.{i}", phase="forward") for i in range(6)]
    ops += [Op(f"turned_{i}", "T", (Output(8),), layer="head", phase="forward", kernel=False) for i in range(5)]
    ops += [Op("scale", "Exp", (Output(4),), flops=min(flops, 1), layer="head", phase="forward")] * (flops > 0)
    ops += [Op("head", "Op", (Output(8),), flops=flops, layer="head", phase="forward")]
    edges = [(i, 0, i + 1) for i in range(5)] + [(i, 0, len(ops) - 1) for i in range(5, len(ops) - 1)]
    placed = expert(problem(ComputationGraph.from_ops("head", ops, edges), equal_gpus(3)), simulate)
    assert placed.device[0] == 0 and set(placed.device[5:].tolist()) == {2}


def test_convolutions_of_sequences_are_layers_like_others():
    """WaveNet's experts split its layers; those of networks for images do not."""
    for shape, gpus in (((8, 8, 4), 2), ((8, 8, 2, 2), 1)):
        ops = [
            Op(f"{i}", "Conv", (Output(1024, shape=shape),), flops=10**6, block=i, layer=f"layers.{i}", canonical_kind="conv")
            for i in range(4)
        ]
        graph = ComputationGraph.from_ops("convolutions", ops, [(i, 0, i + 1) for i in range(3)])
        assert len(set(expert(problem(graph, equal_gpus(2)), simulate).device.tolist())) == gpus
