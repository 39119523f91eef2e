"""Rows to cut into stages: the place of every op of one micro-batch in the row of blocks, and in that of the program.

All copies of an op, its gradients, and what runs once for it have one place. A pass over a row should go one way: then
a stage reads from earlier stages alone. Blocks of one number in the two halves of a U-Net are no such row.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.layers import block_of_ops
from gnnplace.baselines.pipeline import rows
from gnnplace.baselines.pipelines.orders import passes_of_one, repeated
from gnnplace.baselines.pipelines.program_order import coarser, one_way, program_order
from gnnplace.graph import CONTROL, NONE
from gnnplace.problems import Problem
from gnnplace.units.numbers import block_numbers


class RowToCut(NamedTuple):
    """The place of every op of one micro-batch, and whether places are blocks or layers."""

    place: Int64[np.ndarray, " ops_of_a_micro_batch"]
    named: bool

    @property
    def length(self) -> int:
        return int(self.place.max()) + 1


class StepPasses(NamedTuple):
    """The problem of one micro-batch, the pass of each op (0 forward, 1 and 2 gradients), and what is repeated."""

    one: Problem
    number: Int64[np.ndarray, " ops_of_a_micro_batch"]
    repeated: Bool[np.ndarray, " ops_of_a_micro_batch"]


_passes: WeakKeyDictionary[Problem, StepPasses] = WeakKeyDictionary()


def passes_over(problem: Problem) -> StepPasses:
    """The passes of one micro-batch of a step of several, found once."""
    if problem not in _passes:
        copies = copies_of(problem.graph)
        _passes[problem] = StepPasses(of_one_micro_batch(problem), passes_of_one(copies), repeated(copies))
    return _passes[problem]


def rows_to_cut(passes: StepPasses) -> list[RowToCut]:
    """The row of blocks, if passes go one way over it, and that of the program.

    Where modules run in turns, so that one place has more than a device's part of the work, also rows of layers.
    """
    one, number, again = passes
    graph, to_cut = one.graph, list[RowToCut]()
    if block_numbers(graph).max() >= 1:
        block = block_of_ops(graph)
        if one_way(graph, block, number, again).max() == block.max():
            to_cut.append(RowToCut(block, True))
    work = one.time_ns[:, one.cluster.accelerators].mean(axis=1)
    single = program_order(graph, number, again)
    place = one_way(graph, single, number, again)
    largest = [np.bincount(row, weights=work).max() for row in (single, place)]
    to_cut.append(RowToCut(coarser(place, work, _crossing(passes, place)), False))
    if largest[1] > max(largest[0], work.sum() / len(one.cluster.accelerators)):
        to_cut += [RowToCut(each, True) for each in rows(one)]
    return to_cut


def _crossing(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> Float[np.ndarray, " cuts"]:
    """The bytes that the passes of a micro-batch send over each cut of a row, forwards and backwards. Not weights."""
    graph, repeated = passes.one.graph, passes.repeated
    computed = repeated & (np.diff(graph.in_ptr) > 0)
    edge = np.flatnonzero(computed[graph.edge_src] & repeated[graph.edge_dst] & (graph.edge_output != CONTROL))
    first = place[graph.output_op]
    last = first.copy()
    np.minimum.at(first, graph.edge_data[edge], place[graph.edge_dst[edge]])
    np.maximum.at(last, graph.edge_data[edge], place[graph.edge_dst[edge]])
    change = np.zeros(int(place.max()) + 2)
    np.add.at(change, first + 1, graph.output_bytes)
    np.subtract.at(change, last + 1, graph.output_bytes)
    return np.cumsum(change)


def of_one_micro_batch(problem: Problem) -> Problem:
    """The problem of the graph of one micro-batch, with the times of its first copies."""
    copies = copies_of(problem.graph)
    original = copies.original
    first = np.flatnonzero(~copies.added & np.isin(copies.micro_batch, (NONE, 0)))
    time_ns = np.empty((original.num_ops, problem.num_devices), dtype=np.int64)
    time_ns[copies.source[first]] = problem.time_ns[first]
    return Problem(original, problem.cluster, time_ns)
