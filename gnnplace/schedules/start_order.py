"""The order in which the ops of a step started, as priorities of a placement."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import ComputationGraph
from gnnplace.result import Timeline


def start_order(graph: ComputationGraph, timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """Priorities under which an op that started earlier goes first; no op goes before one that it depends on."""
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    priority = np.empty(graph.num_ops, dtype=np.int64)
    priority[np.lexsort((position, timeline.start_ns))] = -np.arange(graph.num_ops)
    return priority
