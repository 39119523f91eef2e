"""Upward and downward ranks (Topcuoglu, Hariri and Wu, 2002): longest paths with means over the accelerators."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float

from gnnplace.cluster import NO_CHANNEL
from gnnplace.compiled import kernel, part
from gnnplace.graph import CONTROL
from gnnplace.problems import Problem


class MeanCosts(NamedTuple):
    """Mean times in ns: of each op on an accelerator, of each output and a control edge between two accelerators."""

    work: Float[np.ndarray, " ops"]
    data: Float[np.ndarray, " outputs"]
    control: float


def mean_costs(problem: Problem) -> MeanCosts:
    """The mean costs of a problem. Transfers take no time if there are no links between accelerators."""
    devices = problem.cluster.accelerators
    links = problem.cluster.link_index[np.ix_(devices, devices)]
    links = links[links >= 0]
    latency = problem.cluster.link_latency_ns[links]
    data, control = np.zeros(len(problem.graph.output_bytes)), 0.0
    if len(links):
        hops = 1 + (problem.cluster.link_receive_channel[links] != NO_CHANNEL)
        data = (problem.transfer_ns[:, problem.link_rate[links]] * hops + latency).mean(axis=1)
        control = float(np.maximum(1, latency).mean())
    return MeanCosts(problem.time_ns[:, devices].mean(axis=1), data, control)


def upward_rank_ns(problem: Problem) -> Float[np.ndarray, " ops"]:
    """The upward rank of each op in ns: the longest path from its start to the end, with mean costs."""
    graph = problem.graph
    return _upward(graph.order, graph.out_ptr, graph.edge_dst, graph.edge_data, mean_costs(problem))


def downward_rank_ns(problem: Problem) -> Float[np.ndarray, " ops"]:
    """The downward rank of each op in ns: the longest path to its start, with mean costs."""
    graph = problem.graph
    return _downward(graph.order, graph.out_ptr, graph.edge_dst, graph.edge_data, mean_costs(problem))


@no_type_check
@part
def message_ns(mean, output):
    """The mean time of the transfer of an edge that carries `output`."""
    return mean.control if output == CONTROL else mean.data[output]


@no_type_check
@kernel
def _upward(order, out_ptr, edge_dst, edge_data, mean):
    rank = np.zeros(len(order))
    for op in order[::-1]:
        behind = 0.0
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            behind = max(behind, message_ns(mean, edge_data[edge]) + rank[edge_dst[edge]])
        rank[op] = mean.work[op] + behind
    return rank


@no_type_check
@kernel
def _downward(order, out_ptr, edge_dst, edge_data, mean):
    rank = np.zeros(len(order))
    for op in order:
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            path = rank[op] + mean.work[op] + message_ns(mean, edge_data[edge])
            rank[edge_dst[edge]] = max(rank[edge_dst[edge]], path)
    return rank
