"""From the actions of a pipeline schedule to a placement: the device of every op, and the order on each device.

An op belongs to the pass of its phase over its stage, for its micro-batch. Passes are ordered by their starts in a step
whose passes all take one unit of time, which is the schedule's own order on each device. Within a pass ops keep the
order of the graph. Inputs, and ops that run once, come before their first reader; updates come at the end.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.legal import legalised
from gnnplace.baselines.pipelines.actions import Reads, Table, starts
from gnnplace.graph import NONE, ComputationGraph, Copies
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.schedules.moments import raised, reached
from gnnplace.transformations.repetition import BACKWARD
from gnnplace.units.units import expand, units

PASSES = "FBW"
FIRST, LAST = -1, 2**40  # before and behind all passes


def placed(
    problem: Problem,
    stage: Int64[np.ndarray, " ops"],
    devices: Int64[np.ndarray, " stages"],
    table: Table,
    reads: Reads | None = None,
) -> Placement:
    """The placement of ops in stages on devices, each of which keeps the order of its row of the table."""
    closure = units(problem.graph, "ops")
    wanted = stage[np.unique(closure.unit, return_index=True)[1]]  # a unit has the stage of its first op
    device = legalised(problem, closure, devices[wanted])
    moment = moments(problem.graph, wanted[closure.unit], table, reads)
    return Placement(expand(closure, device), "in-order", -ranks(problem.graph, moment))


def moments(
    graph: ComputationGraph, stage: Int64[np.ndarray, " ops"], table: Table, reads: Reads | None = None
) -> Int64[np.ndarray, " ops"]:
    """When the pass of each op starts; never before a pass that it reads from.

    Where B and W are one action, what it sends to another stage comes at its end, as papers and runtimes have it.
    An op whose layer or phase is not where its inputs are waits for these, so the order always has an end.
    """
    copies = copies_of(graph)
    started = starts(table, reads)
    count = 1 + max(int(stage.max()), *(of_stage for _, of_stage, _ in started))  # a stage may have lost its ops
    begin = np.full((len(PASSES), count, copies.micro_batches), FIRST)
    for (name, of_stage, of_copy), start in started.items():
        begin[PASSES.index(name), of_stage, of_copy] = start
    again, kind, copy = copies.micro_batch != NONE, passes(copies), np.maximum(copies.micro_batch, 0)
    moment = np.where(again, begin[kind, stage, copy], LAST)
    leaves = np.zeros(graph.num_ops, dtype=bool)
    leaves[graph.edge_src[stage[graph.edge_src] != stage[graph.edge_dst]]] = True
    moment[leaves & again & (kind == 1) & (begin[1] == begin[2])[stage, copy]] += 1
    early = ~reached(graph, again | graph.phase.among(["update"]))
    moment[early & ~graph.kernel] = FIRST
    inputs = again & (np.diff(graph.in_ptr) == 0)
    moment[inputs] = LAST
    moment = -raised(graph, -moment, which=(early & graph.kernel) | inputs, backwards=True)
    return raised(graph, moment)


def ranks(graph: ComputationGraph, moment: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The position of each op in an order by moment, then in the order of the graph of one micro-batch.

    Where that order is not topological, levels take its place.
    """
    ops = np.arange(graph.num_ops)
    for keys in ((ops, graph.level, copies_of(graph).source, moment), (ops, graph.level, moment)):
        rank = np.empty(graph.num_ops, dtype=np.int64)
        rank[np.lexsort(keys)] = ops
        if (rank[graph.edge_src] < rank[graph.edge_dst]).all():
            break
    return rank


def passes(copies: Copies) -> Int64[np.ndarray, " ops"]:
    """The pass of each op, an index into `PASSES`. A sum of gradients belongs to W, whichever pass computed them."""
    number = passes_of_one(copies)[copies.source]
    return np.where(copies.added & (number > 0), 2, number)


def passes_of_one(copies: Copies) -> Int64[np.ndarray, " ops_of_a_micro_batch"]:
    """The pass of each op of one micro-batch.

    An op of the backward pass is in W if its phase says so and no op outside of W reads from it.
    """
    graph = copies.original
    backward, of_weights = reached(graph, graph.phase.among(BACKWARD)), graph.phase.among(["backward_weight"])
    needed = raised(graph, (repeated(copies) & ~of_weights).astype(np.int64), which=of_weights, backwards=True) > 0
    return np.where(of_weights & ~needed, 2, backward.astype(np.int64))


def repeated(copies: Copies) -> Bool[np.ndarray, " ops_of_a_micro_batch"]:
    """True for the ops of one micro-batch that each micro-batch repeats."""
    again = np.zeros(copies.original.num_ops, dtype=bool)
    again[copies.source[(copies.micro_batch != NONE) & ~copies.added]] = True
    return again
