"""What a human expert does: one layer, or a run of blocks of equal work, on each accelerator (Mirhoseini et al., 2017 and 2018).

Gradients, their sums and updates stand with their layer. Embeddings go with the first block, softmax and attention with the last,
by the graph's column `block`; a layer without a block goes to the block that its forward ops lie nearest to. Towers that meet only in
the loss are set one after another, so that each has its own accelerators. Networks of convolutions, and graphs without blocks, go to
a single accelerator, as in the papers.
"""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.legal import accelerators, legalised
from gnnplace.baselines.single import single_gpu
from gnnplace.graph import NONE, Categorical, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.units import Units, expand, units
from gnnplace.transforms.variables import families, merged

CONVOLUTIONS = ("conv", "conv_grad_input", "conv_grad_weight")


def expert(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The expert's placement; the single accelerator of networks of convolutions is the best one that fits."""
    graph = problem.graph
    if graph.block.max() < 1 or _convolutional(graph):
        return single_gpu(problem, evaluate, schedule=schedule)
    made = units(graph, "ops")
    block = _block_of_ops(graph)
    devices = accelerators(problem)
    work = np.bincount(block, weights=problem.time_ns[:, devices].mean(axis=1))
    speed = 1.0 / problem.time_ns[:, devices].sum(axis=0)
    wanted = devices[_runs(work, speed)][block]
    return Placement(expand(made, legalised(problem, made, _of_units(made, wanted))), schedule)


def _convolutional(graph: ComputationGraph) -> bool:
    return int(graph.flops[graph.canonical_kind.among(CONVOLUTIONS)].sum()) * 2 > int(graph.flops.sum())


def _block_of_ops(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The place of every op in the row of blocks, tower after tower: its own, its layer's, or that of the ops next to it."""
    tower = _tower_of_layers(graph)
    row_length = int(graph.block.max()) + 1
    block = np.where(graph.block == NONE, NONE, graph.block + row_length * tower[graph.layer.index]).astype(np.int64)
    forward = _forward(graph)
    centre = _mean_level(graph, block, forward & (block != NONE))
    layer = graph.layer.index.astype(np.int64)
    nameless = forward & (block == NONE) & (layer != NONE)
    for index, level in enumerate(_mean_level(graph, layer, nameless)):
        near = np.flatnonzero(~np.isnan(centre) & ((tower[index] == 0) | (np.arange(len(centre)) // row_length == tower[index])))
        if len(near) and not np.isnan(level):
            block[(layer == index) & (block == NONE)] = near[np.argmin(np.abs(centre[near] - level))]
    return _with_families(graph, _spread(graph, block))


def _tower_of_layers(graph: ComputationGraph) -> Int64[np.ndarray, " layers_plus_1"]:
    """The tower of each layer, 0 outside: towers are top scopes with blocks of their own and no forward edge between them."""
    tops = Categorical.of(re.split(r"[/.]", layer)[0] for layer in graph.layer.values)
    top = np.append(tops.index, NONE)[graph.layer.index]
    blocked = np.unique(top[(graph.block != NONE) & (top != NONE)])
    forward = _forward(graph)
    ends = np.stack([top[graph.edge_src], top[graph.edge_dst]])[:, forward[graph.edge_src] & forward[graph.edge_dst]]
    joined = (ends[0] != ends[1]) & np.isin(ends, blocked).all(axis=0)
    number = np.zeros(len(tops.values) + 1, dtype=np.int64)
    if not joined.any():
        number[blocked] = 1 + np.arange(len(blocked))
    return number[np.append(tops.index, NONE)]


def _forward(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    return graph.phase.among(["forward"]) | (graph.phase.index == NONE)


def _mean_level(graph: ComputationGraph, label: Int64[np.ndarray, " ops"], rows: Bool[np.ndarray, " ops"]) -> Float[np.ndarray, " labels"]:
    """The mean level of the chosen ops of each label, nan where it has none."""
    size = int(label.max(initial=0)) + 1
    count = np.bincount(label[rows], minlength=size)
    total = np.bincount(label[rows], weights=graph.level[rows], minlength=size)
    return np.divide(total, count, out=np.full(size, np.nan), where=count > 0)


def _spread(graph: ComputationGraph, block: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Fills what is unknown from consumers, then from producers, nearest first; what touches no block stands in the first."""
    block = block.copy()
    for ends in ((graph.edge_dst, graph.edge_src), (graph.edge_src, graph.edge_dst)):
        while True:
            rows = np.flatnonzero((block[ends[1]] == NONE) & (block[ends[0]] != NONE))
            if not len(rows):
                break
            block[ends[1][rows[::-1]]] = block[ends[0][rows[::-1]]]
    return np.where(block == NONE, 0, block)


def _with_families(graph: ComputationGraph, block: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Moves every op of a variable's family, and of a colocation group, to the block of the op with the most persistent memory there."""
    group = units(graph, "ops").unit.astype(np.int64)
    group = merged(group, families(graph, group).owner)
    rows = np.lexsort((-np.arange(graph.num_ops), graph.persistent_bytes))
    leader = np.empty(graph.num_ops, dtype=np.int64)
    leader[group[rows]] = rows
    return block[leader[group]]


def _of_units(units: Units, device: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " units"]:
    """The device of each unit's last op: the ops of a unit agree, since families hold whole units."""
    wanted = np.empty(units.num_units, dtype=np.int64)
    wanted[units.unit] = device
    return wanted


def _runs(work: Float[np.ndarray, " blocks"], speed: Float[np.ndarray, " runs"]) -> Int64[np.ndarray, " blocks"]:
    """The run of each block: contiguous runs, run r on the r-th device, such that the slowest device is done as early as may be."""
    ends = np.concatenate([[0.0], np.cumsum(work)])
    count = len(work)
    slowest = np.where(np.arange(count + 1) == 0, 0.0, np.inf)
    starts = np.zeros((len(speed), count + 1), dtype=np.int64)
    for run, rate in enumerate(speed):
        load = np.maximum((ends[None, :] - ends[:, None]) / rate, slowest[:, None])  # [start, end]
        load[np.tril_indices(count + 1, -1)] = np.inf
        starts[run] = count - load[::-1].argmin(axis=0)  # the latest of equals: the first devices are used first
        slowest = load.min(axis=0)
    run_of, end = np.zeros(count, dtype=np.int64), count
    for run in range(len(speed) - 1, -1, -1):
        start = int(starts[run, end])
        run_of[start:end] = run
        end = start
    return run_of
