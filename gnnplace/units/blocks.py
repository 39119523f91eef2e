"""Blocks: sets of colocation groups that a search moves together, at several grains from single groups to layers.

Good placements of recurrent networks are runs of layers, runs of time steps and wavefronts across both; those of
convolutional networks are branches. The grains come from the columns of the graph (block, time step, layer, phase), and
from the units `weights` and `coarse`. In a step of several micro-batches a time step is one of a single micro-batch, so
that a layer moves with all its copies or with one.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.units.units import Units, units

GRAINS = (
    "ops", "weights", "coarse", "block", "time step", "block, time step", "layer", "layer, time step", "block, phase",
    "layer, phase",
)  # fmt: skip


class Grain(NamedTuple):
    """The blocks of one grain: block b consists of the units `member[ptr[b]:ptr[b+1]]` (units `ops`)."""

    name: str
    ptr: Int64[np.ndarray, " blocks_plus_1"]
    member: Int64[np.ndarray, " members"]

    @property
    def num_blocks(self) -> int:
        return len(self.ptr) - 1

    def block(self, number: int) -> Int64[np.ndarray, " members"]:
        """The units of one block."""
        return self.member[self.ptr[number] : self.ptr[number + 1]]


_grains: WeakKeyDictionary[ComputationGraph, tuple[Grain, ...]] = WeakKeyDictionary()


def grains(graph: ComputationGraph) -> tuple[Grain, ...]:
    """Every grain of the units `ops` with at least two blocks, built once and kept as long as the graph lives."""
    if graph not in _grains:
        _grains[graph] = _build(graph, units(graph, "ops"))
    return _grains[graph]


def _build(graph: ComputationGraph, closure: Units) -> tuple[Grain, ...]:
    block, step, layer, phase = (
        column.astype(np.int64) for column in (graph.block, graph.time_step, graph.layer.index, graph.phase.index)
    )
    if (copies := graph.copies) is not None:
        again = copies.micro_batch != NONE
        step = np.where(again, (step + 1) * copies.micro_batches + copies.micro_batch, NONE)
    weights, coarse = (units(graph, name).unit.astype(np.int64) for name in ("weights", "coarse"))
    labels = ([np.arange(graph.num_ops)], [weights], [coarse],
              [block], [step], [block, step], [layer], [layer, step], [block, phase], [layer, phase])  # fmt: skip
    partitions = [_grain(name, columns, closure) for name, columns in zip(GRAINS, labels, strict=True)]
    return tuple(grain for grain in partitions if grain.num_blocks > 1)


def _grain(name: str, columns: list[Int64[np.ndarray, " ops"]], closure: Units) -> Grain:
    """The grain of some columns. A unit is in the block of its first op, or in none if that op lacks a column."""
    first = np.zeros(closure.num_units, dtype=np.int64)
    first[closure.unit[::-1]] = np.arange(len(closure.unit))[::-1]
    rows = np.stack(columns)[:, first]
    member = np.flatnonzero((rows != NONE).all(axis=0))
    order = np.lexsort(rows[::-1, member])
    member, rows = member[order], rows[:, member[order]]
    begins = np.flatnonzero((rows[:, 1:] != rows[:, :-1]).any(axis=0)) + 1
    return Grain(name, np.concatenate([[0], begins, [len(member)]])[: 1 + len(member)].astype(np.int64), member)


def shares(grain: Grain, work: Float[np.ndarray, " units"]) -> Float[np.ndarray, " blocks"]:
    """The probability of drawing each block: half in proportion to its work, half uniform."""
    block_work = np.add.reduceat(work[grain.member], grain.ptr[:-1])
    return (block_work / max(1.0, float(block_work.sum())) + 1 / grain.num_blocks) / (1 + (block_work.sum() > 0))
