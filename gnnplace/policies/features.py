"""Features of units and edges for a GNN, normalised so that weights transfer between graphs and clusters.

Every feature is a share, a ratio or the logarithm of one, over vocabularies that all frameworks share: nothing names
one graph's ops or counts one cluster's devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from gnnplace.graph import CANONICAL_KINDS, NONE, PHASES, Categorical
from gnnplace.problems import Problem
from gnnplace.schedules.paths import longest_paths
from gnnplace.units.units import Units, output_bytes, persistent_bytes, unit_edges, work_ns

NODE_FEATURES = len(CANONICAL_KINDS) + len(PHASES) + 16
EDGE_FEATURES = 2


class GraphFeatures(NamedTuple):
    """The graph of units: node features, edges (source, destination) and edge features."""

    node: Float[Tensor, "units node_features"]
    edges: Int64[Tensor, "2 edges"]
    edge: Float[Tensor, "edges edge_features"]


def features(problem: Problem, units: Units) -> GraphFeatures:
    """Features of the graph that `units` make of a problem's ops."""
    return GraphFeatures(torch.from_numpy(node_features(problem, units)), *edges_with_features(problem, units))


def node_features(problem: Problem, units: Units) -> Float32[np.ndarray, "units node_features"]:
    """Features of units: kinds, phases, times, memory, position in the step, degrees."""
    columns = [
        _shares(problem, units, problem.graph.canonical_kind, CANONICAL_KINDS),
        _shares(problem, units, problem.graph.phase, PHASES),
        _work(problem, units),
        _memory(problem, units),
        _position(problem, units),
        _structure(problem, units),
    ]
    node = np.concatenate(columns, axis=1).astype(np.float32)
    assert node.shape == (units.num_units, NODE_FEATURES) and np.isfinite(node).all()
    return node


def edges_with_features(
    problem: Problem, units: Units
) -> tuple[Int64[Tensor, "2 edges"], Float[Tensor, "edges edge_features"]]:
    """The edges between units (source, destination), and their features."""
    edges = unit_edges(problem.graph, units)
    between = torch.from_numpy(np.stack([edges.src, edges.dst]).astype(np.int64))
    return between, torch.from_numpy(edge_features(edge_scale(problem), units.num_units, edges.bytes))


def _sum(units: Units, values: Float[np.ndarray, " ops"]) -> Float[np.ndarray, " units"]:
    return np.bincount(units.unit, weights=values, minlength=units.num_units)


def _mean(
    units: Units, values: Float[np.ndarray, " ops"], weights: Float[np.ndarray, " ops"]
) -> Float[np.ndarray, " units"]:
    return _sum(units, values * weights) / _sum(units, weights)


def _fastest(problem: Problem) -> Float[np.ndarray, " ops"]:
    return problem.time_ns.min(axis=1).astype(np.float64)


def _shares(
    problem: Problem, units: Units, column: Categorical, words: tuple[str, ...]
) -> Float[np.ndarray, "units words"]:
    """The share of a unit's work under each word of a vocabulary."""
    work = _fastest(problem)
    return np.stack([_mean(units, column.among([word]).astype(np.float64), work) for word in words], axis=1)


def _work(problem: Problem, units: Units) -> Float[np.ndarray, "units 4"]:
    work = _sum(units, _fastest(problem))
    return np.stack(
        [
            np.log(work / work.mean()),
            work / work.max(),
            np.log(work_ns(problem, units).max(axis=1) / work),
            np.log(np.bincount(units.unit, minlength=units.num_units) * units.num_units / problem.num_ops),
        ],
        axis=1,
    )


def _memory(problem: Problem, units: Units) -> Float[np.ndarray, "units 3"]:
    graph, room = problem.graph, float(max(1, problem.cluster.memory_bytes.max()))
    workspace = _sum(units, graph.workspace_bytes.astype(np.float64))
    held = np.stack([persistent_bytes(graph, units), output_bytes(graph, units), workspace], axis=1)
    return np.log1p(100 * held / room)


def _position(problem: Problem, units: Units) -> Float[np.ndarray, "units 7"]:
    """The position of a unit in the step: block, time step, head and tail of the longest paths, slack."""
    graph, work = problem.graph, _fastest(problem)
    paths = longest_paths(graph, problem.time_ns.min(axis=1))
    critical = float(paths.critical_path_ns)
    slack = 1 - (paths.head_ns + paths.tail_ns) / critical
    columns = [_mean(units, value, work) for value in (paths.head_ns / critical, paths.tail_ns / critical, slack)]
    for column in (graph.block, graph.time_step):
        present = column != NONE
        columns.append(_mean(units, present.astype(np.float64), work))
        columns.append(_mean(units, np.where(present, column, 0) / max(1, int(column.max())), work))
    return np.stack(columns, axis=1)


def _structure(problem: Problem, units: Units) -> Float[np.ndarray, "units 2"]:
    edges = unit_edges(problem.graph, units)
    degrees = [np.bincount(ends, minlength=units.num_units) for ends in (edges.dst, edges.src)]
    return np.log1p(np.stack(degrees, axis=1).astype(np.float64))


class EdgeScale(NamedTuple):
    """The scale of edges: the time of a byte over the mean link, and the time of all work, both in ns."""

    ns_per_byte: float
    work_ns: float


def edge_scale(problem: Problem) -> EdgeScale:
    """The scale of a problem's edges; without links, transfers take no time."""
    bandwidths = [link.bandwidth_bytes_per_s for link in problem.cluster.links]
    return EdgeScale(1e9 / float(np.mean(bandwidths)) if bandwidths else 0.0, float(_fastest(problem).sum()))


def edge_features(
    scale: EdgeScale, nodes: int, carried: Int64[np.ndarray, " edges"]
) -> Float32[np.ndarray, "edges edge_features"]:
    """Features of edges: the time of their bytes over the mean work of the `nodes`, and 1 for a control edge."""
    transfer_ns = carried * scale.ns_per_byte
    return np.stack([np.log1p(transfer_ns * nodes / scale.work_ns), carried == 0], axis=1).astype(np.float32)
