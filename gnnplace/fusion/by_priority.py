"""Fusion by priorities: "Learning to Fuse" (Abdolrashidi et al., 2019, section 3), which GO (Zhou et al., NeurIPS 2020)
takes over.

Ops are visited by falling priority. An op of the forward pass tries to be fused with one of its inputs, an op of the
backward pass with one of its outputs. What was fused can be fused again, until it has a number of ops. The papers are
silent on four things. Of several inputs an op takes the largest that may be fused with it (the most traffic is saved).
Of equal priorities the first in topological order goes first, as in the papers' baseline. Updates, and ops of an
unknown phase, try their inputs. The number of ops is 64 unless given.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Integer

from gnnplace.fusion.growing import MOST_OPS, grown, tries
from gnnplace.problems import Problem

BACKWARD = ("backward_data", "backward_weight")


def by_priority(
    problem: Problem,
    priority: Integer[np.ndarray, " ops"],
    device: Int32[np.ndarray, " ops"] | None = None,
    most_ops: int = MOST_OPS,
) -> Int32[np.ndarray, " ops"]:
    """The fusion of a placement that priorities of its ops give, the highest first. Ops on different devices are not
    fused.

    Without devices, the fusion leaves some device for each group. Raises ValueError for a wrong number of priorities.
    """
    graph = problem.graph
    if priority.shape != (graph.num_ops,):
        raise ValueError(f"priority: {len(priority)} entries for {graph.num_ops} ops")
    order = graph.order[np.argsort(~priority[graph.order], kind="stable")]
    every = np.ones(graph.num_edges, dtype=bool)
    return grown(problem, order, tries(graph, every, graph.phase.among(BACKWARD)), device, most_ops)
