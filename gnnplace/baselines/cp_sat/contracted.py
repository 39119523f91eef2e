"""Contracts a large problem to a small one whose ops are parts of units, and lifts placements back.

Contracting whole units could create cycles. So an op of the small problem is a part of a unit: the ops at one depth,
which is the largest number of changes of unit on a path to them. Every edge leads to the same part or to a deeper one,
so the graph of parts is acyclic. The parts of a unit form a colocation group. A part runs its ops one after another and
produces all outputs at its end, so its times and its memory are estimates.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.compiled import kernel
from gnnplace.graph import CONTROL, NONE, ComputationGraph, Op, Output
from gnnplace.placement import Placement, missing_link
from gnnplace.problems import Problem
from gnnplace.schedules.ranks import rank_ns
from gnnplace.units.cells import legality
from gnnplace.units.contraction import contract
from gnnplace.units.units import Units


class Contracted(NamedTuple):
    """The small problem, and for each op of the large problem the op of the small one that contains it."""

    problem: Problem
    part: Int64[np.ndarray, " ops"]


def contracted(problem: Problem, grouping: Units, max_choices: int) -> Contracted:
    """The problem after merging units along heavy edges until it has at most `max_choices` ops x devices.

    It may have more if it has a single unit for each set of allowed devices.
    """
    graph, limit = problem.graph, max(1, max_choices // problem.num_devices)
    label = grouping.unit.astype(np.int64)
    rules = legality(graph, label)
    while True:
        unit = contract(graph, label, rules, limit)
        part = _parts(graph, unit)
        if limit == 1 or (int(part.max()) + 1) * problem.num_devices <= max_choices:
            return Contracted(_problem_of_parts(problem, unit, part), part)
        limit = limit * 2 // 3


def lifted(problem: Problem, small: Contracted, placement: Placement) -> Placement:
    """The placement of all ops from a placement of the small problem. Ops have the order of their parts."""
    assert placement.priority is not None
    return by_start(problem, placement.device[small.part], -placement.priority[small.part])


def by_start(problem: Problem, device: Int32[np.ndarray, " ops"], start: Int64[np.ndarray, " ops"]) -> Placement:
    """A placement with priorities by start time; ties go by rank."""
    rank = np.zeros_like(start) if missing_link(problem, device) else rank_ns(problem, device)
    priority = np.empty_like(start)
    priority[np.lexsort((-rank, start))] = -np.arange(len(start))
    return Placement(device, "given", priority)


def _parts(graph: ComputationGraph, unit: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The part of each op. Parts are numbered in topological order."""
    depth = _depth(graph.order, graph.out_ptr, graph.edge_dst, unit)
    return np.unique(depth * (int(unit.max()) + 1) + unit, return_inverse=True)[1].reshape(-1).astype(np.int64)


@no_type_check
@kernel
def _depth(order, out_ptr, edge_dst, unit):
    depth = np.zeros(len(order), np.int64)
    for op in order:
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            dst = edge_dst[edge]
            depth[dst] = max(depth[dst], depth[op] + (unit[op] != unit[dst]))
    return depth


def _problem_of_parts(problem: Problem, unit: Int64[np.ndarray, " ops"], part: Int64[np.ndarray, " ops"]) -> Problem:
    count = int(part.max()) + 1
    unit_of = np.zeros(count, dtype=np.int64)
    unit_of[part] = unit
    times = np.zeros((count, problem.num_devices), np.int64)
    persistent, workspace = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(times, part, problem.time_ns)
    np.add.at(persistent, part, problem.graph.persistent_bytes)
    np.maximum.at(workspace, part, problem.graph.workspace_bytes)
    forbidden = np.zeros(times.shape, dtype=bool)
    np.logical_or.at(forbidden, part, ~problem.allowed)
    outputs, edges = _traffic(problem.graph, unit_of, part)
    names = problem.cluster.device_names
    ops = [
        Op(f"{unit_of[p]}/{p}", "part", tuple(outputs[p]),
           persistent_bytes=int(persistent[p]), workspace_bytes=int(workspace[p]),
           time_ns={name: int(times[p, d]) for d, name in enumerate(names) if not forbidden[p, d]},
           colocation=str(unit_of[p]))
        for p in range(count)
    ]  # fmt: skip
    return Problem(
        ComputationGraph.from_ops(f"{problem.graph.name}, {count} parts", ops, edges), problem.cluster, times
    )


def _traffic(
    graph: ComputationGraph, unit_of: Int64[np.ndarray, " parts"], part: Int64[np.ndarray, " ops"]
) -> tuple[list[list[Output]], list[tuple[int, int, int]]]:
    """The outputs of each part and the edges between parts. Outputs that go to the same units form one output.

    An alias that stays within its unit has no bytes.
    """
    takers: dict[int, set[int]] = defaultdict(set)
    edges = set()
    for output, src, dst in zip(
        graph.edge_data.tolist(), part[graph.edge_src].tolist(), part[graph.edge_dst].tolist(), strict=True
    ):
        if src != dst and output == NONE:
            edges.add((src, CONTROL, dst))
        elif src != dst:
            takers[output].add(dst)
    bundles: dict[tuple[int, frozenset[int]], list[int]] = defaultdict(list)
    for output, parts in takers.items():
        bundles[int(part[graph.output_op[output]]), frozenset(unit_of[list(parts)].tolist())].append(output)
    outputs: list[list[Output]] = [[] for _ in unit_of]
    for (src, taking), carried in bundles.items():
        inside = taking == {int(unit_of[src])}
        held = [output for output in carried if not (inside and graph.output_alias[output] != NONE)]
        edges |= {(src, len(outputs[src]), dst) for output in carried for dst in takers[output]}
        outputs[src].append(Output(int(graph.output_bytes[held].sum())))
    return outputs, sorted(edges)
