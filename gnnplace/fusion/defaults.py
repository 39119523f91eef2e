"""The fusion that frameworks do by default: a cheap op runs in the kernel that produces its input.

TensorFlow's remapper (Conv2D or MatMul with BiasAdd, batch normalisation and activation), XLA's producer-consumer
fusion of elementwise ops and OpenVINO's fused convolutions agree on this much. An op of the kinds `FOLLOWING` joins the
producer of its largest input, if no other op reads that input and it is not a result. Ops are visited in topological
order, so chains of such ops end up in one kernel.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32

from gnnplace.fusion.growing import MOST_OPS, grown, tries
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import Problem

FOLLOWING = ("elementwise", "activation", "activation_grad", "cast", "normalization", "reshape")


def default(
    problem: Problem, device: Int32[np.ndarray, " ops"] | None = None, most_ops: int = MOST_OPS
) -> Int32[np.ndarray, " ops"]:
    """The default fusion. If `device` is given, ops on different devices are not fused."""
    graph = problem.graph
    follows = graph.canonical_kind.among(FOLLOWING)[graph.edge_dst] & _read_once(graph)
    return grown(problem, graph.order, tries(graph, follows, np.zeros(graph.num_ops, dtype=bool)), device, most_ops)


def _read_once(graph: ComputationGraph) -> Bool[np.ndarray, " edges"]:
    """True for edges whose output is not a result and is carried by no other edge."""
    data = graph.edge_data
    readers = np.bincount(data[data != NONE], minlength=len(graph.output_bytes))
    alone = np.append((readers == 1) & ~graph.output_is_result, False)
    return alone[data]
