"""The place of each op in the row of blocks or layers, as a human expert sees the model.

Gradients, their sums and updates have the place of their layer. The column `block` of the graph puts embeddings into
the first block, and softmax and attention into the last. A layer without a block joins the block whose forward ops have
the nearest mean level, within its own scope if that has blocks. Towers that meet only in the loss follow one another,
so that at most one accelerator holds parts of two towers.
"""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.graph import NONE, Categorical, ComputationGraph
from gnnplace.units.numbers import block_numbers, numbered
from gnnplace.units.units import units
from gnnplace.units.variables import families, merged


def block_of_ops(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The block of every op: its own, the block of its layer, or that of a neighbour. Towers follow one another."""
    top = _top_scopes(graph)
    layer = graph.layer.index.astype(np.int64)
    number = block_numbers(graph)
    tower = _towers(graph, top[layer])[top[layer]]
    block = numbered(np.where(number == NONE, NONE, number + (int(number.max()) + 1) * tower))
    forward, blocked = _forward(graph), block != NONE
    work = 1.0 + graph.flops  # weighted by work: a loss belongs last, even if its module creates masks first
    centre = _mean_level(graph, block, forward & blocked, work)
    within = np.zeros((int(top.max()) + 2, len(centre)), dtype=bool)
    within[top[layer[blocked]], block[blocked]] = True
    within[~within.any(axis=1)] = True
    nameless = forward & ~blocked & (layer != NONE)
    for index, level in enumerate(_mean_level(graph, layer, nameless, work)):
        near = np.flatnonzero(~np.isnan(centre) & within[top[index]])
        if len(near) and not np.isnan(level):
            block[(layer == index) & (block == NONE)] = near[np.argmin(np.abs(centre[near] - level))]
    return with_families(graph, spread(graph, block))


def layer_of_ops(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The layer of every op: its own layer, or that of a neighbour.

    Layers with forward ops are numbered by the mean level of these ops.
    """
    layer = graph.layer.index.astype(np.int64)
    level = _mean_level(graph, layer, _forward(graph) & (layer != NONE), np.ones(graph.num_ops))
    place = np.full(len(level) + 1, NONE, dtype=np.int64)  # the last one is for ops without a layer
    computes = np.flatnonzero(~np.isnan(level))
    place[computes[np.argsort(level[computes], kind="stable")]] = np.arange(len(computes))
    return with_families(graph, spread(graph, place[np.where(layer == NONE, len(level), layer)]))


def with_families(graph: ComputationGraph, place: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The places after each variable's family and each colocation group moves to its op with most persistent bytes.

    The gradient that a layer computes keeps the place of the layer, even if the weight belongs to another layer (a tied
    embedding).
    """
    group = units(graph, "ops").unit.astype(np.int64)
    computed = graph.phase.among(["backward_data", "backward_weight"]) & (graph.layer.index != NONE)
    group = merged(group, np.where(computed, NONE, families(graph, group).owner))
    rows = np.lexsort((-np.arange(graph.num_ops), graph.persistent_bytes))
    leader = np.empty(graph.num_ops, dtype=np.int64)
    leader[group[rows]] = rows
    return place[leader[group]]


def _top_scopes(graph: ComputationGraph) -> Int64[np.ndarray, " layers_plus_1"]:
    """The number of each layer's top scope. The last entry, `NONE`, is for ops without a layer."""
    tops = Categorical.of(re.split(r"[/.]", layer)[0] for layer in graph.layer.values)
    return np.append(tops.index, NONE).astype(np.int64)


def _towers(graph: ComputationGraph, top: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " scopes_plus_1"]:
    """The tower of each top scope, 0 for none.

    Towers are scopes with blocks of their own and no forward edges between them.
    """
    blocked = np.unique(top[(graph.block != NONE) & (top != NONE)])
    forward = _forward(graph)
    ends = np.stack([top[graph.edge_src], top[graph.edge_dst]])[:, forward[graph.edge_src] & forward[graph.edge_dst]]
    joined = (ends[0] != ends[1]) & np.isin(ends, blocked).all(axis=0)
    number = np.zeros(int(top.max(initial=NONE)) + 2, dtype=np.int64)
    if not joined.any():
        number[blocked] = 1 + np.arange(len(blocked))
    return number


def _forward(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for ops of the forward pass, and for ops without a phase."""
    return graph.phase.among(["forward"]) | (graph.phase.index == NONE)


def _mean_level(
    graph: ComputationGraph,
    label: Int64[np.ndarray, " ops"],
    rows: Bool[np.ndarray, " ops"],
    weight: Float[np.ndarray, " ops"],
) -> Float[np.ndarray, " labels"]:
    """The weighted mean level of the chosen ops of each label, or nan.

    Views don't count, because the views of a weight have the lowest levels, wherever the weight is used.
    """
    size = int(label.max(initial=0)) + 1
    rows = rows & graph.kernel
    count = np.bincount(label[rows], weights=weight[rows], minlength=size)
    total = np.bincount(label[rows], weights=weight[rows] * graph.level[rows], minlength=size)
    return np.divide(total, count, out=np.full(size, np.nan), where=count > 0)


def spread(graph: ComputationGraph, place: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The places after ops without one get that of a consumer, then of a producer, the nearest first.

    An op that no place reaches gets place 0.
    """
    place = place.copy()
    for ends in ((graph.edge_dst, graph.edge_src), (graph.edge_src, graph.edge_dst)):
        while True:
            rows = np.flatnonzero((place[ends[1]] == NONE) & (place[ends[0]] != NONE))
            if not len(rows):
                break
            place[ends[1][rows[::-1]]] = place[ends[0][rows[::-1]]]
    return np.where(place == NONE, 0, place)
