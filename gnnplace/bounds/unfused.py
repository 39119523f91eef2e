"""A problem without fusion whose steps are no longer than any fused step: what lower bounds for every fusion are
computed from.

A fused op takes at least the sum, over its ops, of their arithmetic and of what the roofline does not explain, and the
launch of its heavy op, if it has one (`costs.fused_ops`). So each op may take only that much, and a fused step becomes
a step without fusion: the ops of a group run one after another while the fused op does. Then the buffers of tensors
that stayed in the group exist, too. A device whose memory is larger by all outputs that may run into a fused op has
room for them.
"""

from __future__ import annotations

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool

from gnnplace.cluster import MAX_BYTES, Cluster
from gnnplace.costs.fused_ops import parts
from gnnplace.fusion.rules import rules
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import Problem

_unfused: WeakKeyDictionary[Problem, Problem] = WeakKeyDictionary()


def unfused(problem: Problem) -> Problem:
    """The problem without fusion of which no step is longer than a fused step of `problem`. It is cached as long as
    `problem` lives."""
    if problem not in _unfused:
        fuses, part = may_fuse(problem.graph), parts(problem)[0]
        launch_ns = np.where(rules(problem.graph).heavy[:, None], part.launch_ns, 0)
        least_ns = np.where(fuses[:, None], launch_ns + part.beyond_ns + part.arithmetic_ns, problem.time_ns)
        _unfused[problem] = Problem(problem.graph, _roomier(problem.graph, problem.cluster, fuses), least_ns)
    return _unfused[problem]


def may_fuse(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for ops that may be fused with some neighbour."""
    fusable, heavy = rules(graph)
    src, dst = (ends[graph.edge_data != NONE] for ends in (graph.edge_src, graph.edge_dst))
    joins = fusable[src] & fusable[dst] & ~(heavy[src] & heavy[dst])
    mask = np.zeros(graph.num_ops, dtype=bool)
    mask[src[joins]] = mask[dst[joins]] = True
    return mask


def _roomier(graph: ComputationGraph, cluster: Cluster, fuses: Bool[np.ndarray, " ops"]) -> Cluster:
    """The cluster with room on each device for all outputs of tensors that ops which may be fused make."""
    room = int(graph.output_bytes[fuses[graph.output_op[graph.output_root]]].sum())
    devices = [replace(device, memory_bytes=min(MAX_BYTES, device.memory_bytes + room)) for device in cluster.devices]
    return replace(cluster, devices=tuple(devices))
