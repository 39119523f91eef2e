"""HEFT: list scheduling by upward rank and earliest finish time, with insertion (Topcuoglu, Hariri and Wu, 2002).

Ours places units: the first op of a unit, in the order of ranks, decides for all of it, by the time at which the unit's work could
end; its other ops follow when their turn comes. Ops that cost nothing (variables, reads, constants) stand with their first consumer.
The best of four by the evaluator: with and without the load that earlier units will still bring, on all devices and on accelerators.
"""

from __future__ import annotations

from typing import no_type_check

import numba
import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.legal import accelerators, on_accelerators
from gnnplace.baselines.list_schedule import instance, schedule_units
from gnnplace.graph import CONTROL
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.units import UnitsName, allowed, expand, units


def heft(problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path") -> Placement:
    """The fastest of the four variants. Raises ValueError where a unit may stand nowhere."""
    made = units(problem.graph, units_name)
    legal = allowed(problem, made)
    sequence, leader = _sequence(problem, upward_rank_ns(problem))
    found = [
        expand(made, schedule_units(instance(problem, made, devices, sequence, leader), balance)[0])
        for devices in _device_sets(problem, legal)
        for balance in (False, True)
    ]
    return fastest(problem, [Placement(device, schedule) for device in found], evaluate)


def upward_rank_ns(problem: Problem) -> Float[np.ndarray, " ops"]:
    """The longest path from the start of each op, with mean times and mean transfers of the accelerators."""
    graph, cluster = problem.graph, problem.cluster
    devices = accelerators(problem)
    links = cluster.link_index[np.ix_(devices, devices)]
    links = links[links >= 0]
    latency = cluster.link_latency_ns[links]
    data, control = np.zeros(len(graph.output_bytes)), 0.0
    if len(links):
        data = (problem.transfer_ns[:, problem.link_rate[links]] + latency).mean(axis=1)
        control = float(np.maximum(1, latency).mean())
    return _rank(graph.order, graph.out_ptr, graph.edge_dst, graph.edge_data, problem.time_ns[:, devices].mean(axis=1), data, control)


def _device_sets(problem: Problem, legal: Bool[np.ndarray, "units devices"]) -> list[Bool[np.ndarray, "units devices"]]:
    """Where units may stand; and, if there are CPUs, the same without CPUs wherever that leaves a device."""
    fast = on_accelerators(problem, legal)
    return [legal] if np.array_equal(fast, legal) else [legal, fast]


def _sequence(problem: Problem, rank: Float[np.ndarray, " ops"]) -> tuple[Int64[np.ndarray, " ops"], Int64[np.ndarray, " ops"]]:
    """Ops by falling rank in a topological order, those that cost nothing just before their first consumer, which leads them."""
    graph = problem.graph
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    by_rank = np.lexsort((position, -rank))
    return _before_consumers(by_rank, graph.order, graph.in_ptr, graph.in_edges, graph.edge_src, graph.kernel)


@no_type_check
@numba.njit(cache=True)
def _rank(order, out_ptr, edge_dst, edge_data, work, data, control):
    rank = np.zeros(len(order))
    for op in order[::-1]:
        behind = 0.0
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            delay = control if edge_data[edge] == CONTROL else data[edge_data[edge]]
            behind = max(behind, delay + rank[edge_dst[edge]])
        rank[op] = work[op] + behind
    return rank


@no_type_check
@numba.njit(cache=True)
def _before_consumers(by_rank, order, in_ptr, in_edges, edge_src, kernel):
    ops = len(order)
    costs = kernel.copy()  # a kernel, or an input that costs
    for op in order:
        for position in range(in_ptr[op], in_ptr[op + 1]):
            costs[op] |= costs[edge_src[in_edges[position]]]
    sequence, leader, count = np.empty(ops, np.int64), np.full(ops, -1), 0
    stack = np.empty(ops + len(in_edges), np.int64)
    for free_too in (False, True):
        for first in by_rank:
            if leader[first] != -1 or not (free_too or costs[first]):
                continue
            stack[0], height = first, 1
            while height > 0:
                op, waits = stack[height - 1], False
                if leader[op] == -1:
                    for position in range(in_ptr[op], in_ptr[op + 1]):
                        src = edge_src[in_edges[position]]
                        if leader[src] == -1:
                            stack[height] = src
                            height += 1
                            waits = True
                if waits:
                    continue
                height -= 1
                if leader[op] == -1:
                    sequence[count], leader[op] = op, first
                    count += 1
    return sequence, leader
