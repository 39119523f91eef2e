"""Coarse units: cells of layer x time step x phase, contracted to at most 1,000. The state of a layer is one cell.

Layers are cut to the finest depth of name scopes with at most that many cells, so that a placement can express
wavefronts over layers and time steps. Ops with neither a layer nor a time step join cells only through the contraction
of heavy edges.
"""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.units.contraction import contract
from gnnplace.units.numbers import row_numbers
from gnnplace.units.variables import families, merged

LIMIT = 1000
ENOUGH = LIMIT // 4  # with fewer cells than this, the next depth is contracted instead
STATE = -2  # the phase and time step of a cell of variables


def coarse(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels of at most `LIMIT` units; `group` is the colocation closure.

    There are more only if ops have more than `LIMIT` different sets of allowed devices.
    """
    owner = families(graph, group).owner
    group = merged(group, owner)
    rule = legality(graph, group)
    key = np.stack([rule, graph.block, graph.time_step, graph.phase.index], axis=1).astype(np.int64)
    key[owner != NONE, 2:] = STATE
    return contract(graph, _cells(graph, group, key), rule, LIMIT)


def legality(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """A number for the device rules of each group (`allowed` and given times).

    Only groups with equal rules may be merged.
    """
    columns = np.concatenate([graph.allowed.index[:, None], graph.given_time_ns != NONE], axis=1)
    rule = row_numbers(columns)
    distinct = np.unique(group * np.int64(len(rule)) + rule)
    rules: dict[int, tuple[int, ...]] = {}
    for label, number in zip((distinct // len(rule)).tolist(), (distinct % len(rule)).tolist(), strict=True):
        rules[label] = (*rules.get(label, ()), number)
    table = {ruleset: index for index, ruleset in enumerate(sorted(set(rules.values())))}
    number_of = np.zeros(graph.num_ops, dtype=np.int64)
    number_of[list(rules)] = [table[ruleset] for ruleset in rules.values()]
    return number_of[group]


def _cells(
    graph: ComputationGraph, group: Int64[np.ndarray, " ops"], key: Int64[np.ndarray, "ops 4"]
) -> Int64[np.ndarray, " ops"]:
    """Labels at the finest depth of name scopes with at most `LIMIT` cells.

    If these are fewer than `ENOUGH`, one depth further.
    """
    deepest = max((len(scopes(layer)) for layer in graph.layer.values), default=0)
    label = _at_depth(graph, group, key, 0)
    for depth in range(1, deepest + 1):
        finer = _at_depth(graph, group, key, depth)
        if len(np.unique(finer)) > LIMIT:
            return label if len(np.unique(label)) >= ENOUGH else finer
        label = finer
    return label


def _at_depth(
    graph: ComputationGraph, group: Int64[np.ndarray, " ops"], key: Int64[np.ndarray, "ops 4"], depth: int
) -> Int64[np.ndarray, " ops"]:
    """Labels that merge the groups whose leaders share a cell; layer names are cut to `depth` scopes."""
    cut = [scopes(layer)[:depth] for layer in graph.layer.values]
    number = {scope: index for index, scope in enumerate(dict.fromkeys(cut))}
    layer = np.array([number[scope] for scope in cut] + [NONE], dtype=np.int64)[graph.layer.index]
    cell = np.concatenate([layer[:, None], key], axis=1)[leader(graph, group)]
    has_cell = (cell[:, 0] != NONE) | (cell[:, 3] >= 0)
    index = row_numbers(cell)
    return merged(group, np.where(has_cell, index, NONE))


def scopes(layer: str) -> tuple[str, ...]:
    """The name scopes of a layer: `h.0/mlp` has `h`, `0` and `mlp`."""
    return tuple(re.split(r"[/.]", layer))


def leader(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The leader of each op's group: the op with the most persistent bytes, the lowest index on a tie."""
    rows = np.lexsort((-np.arange(graph.num_ops), graph.persistent_bytes))
    leader_of = np.empty(graph.num_ops, dtype=np.int64)
    leader_of[group[rows]] = rows
    return leader_of[group]
