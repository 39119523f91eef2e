"""Adds the fixed order of each device to a graph as control edges.

An executor enqueues ops in the order of the simulated step, and keeps that order whatever happens.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int32

from gnnplace.graph import CONTROL, ComputationGraph


def in_order(graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]) -> ComputationGraph:
    """The graph with a control edge between any two successive ops of a device; `order` is a topological order of all ops."""
    grouped = order[np.argsort(device[order], kind="stable")]
    follows = device[grouped[:-1]] == device[grouped[1:]]
    src, dst = grouped[:-1][follows], grouped[1:][follows]
    added = np.stack([src, np.full(len(src), CONTROL, dtype=np.int32), dst], axis=1)
    edges = np.concatenate([np.stack([graph.edge_src, graph.edge_output, graph.edge_dst], axis=1), added])
    columns = np.unique(edges, axis=0).astype(np.int32)
    return replace(graph, edge_src=columns[:, 0].copy(), edge_output=columns[:, 1].copy(), edge_dst=columns[:, 2].copy())
