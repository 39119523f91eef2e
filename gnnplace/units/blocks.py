"""Blocks: sets of colocation groups that a search moves together, at several grains from single groups to whole layers.

A recurrent network's good placements are runs of layers, of time steps, and wavefronts across both; convolutional ones are branches. What
the graph's columns say of an op gives each grain, coarse units and the families of variables two more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.units.units import Units, units


class Grain(NamedTuple):
    """Blocks of one grain: those of block b are `member[ptr[b]:ptr[b+1]]`, units of the colocation closure."""

    name: str
    ptr: Int64[np.ndarray, " blocks_plus_1"]
    member: Int64[np.ndarray, " members"]

    @property
    def num_blocks(self) -> int:
        return len(self.ptr) - 1

    def block(self, number: int) -> Int64[np.ndarray, " members"]:
        """The units of one block."""
        return self.member[self.ptr[number] : self.ptr[number + 1]]


def grains(graph: ComputationGraph, closure: Units) -> tuple[Grain, ...]:
    """Every grain that has at least two blocks. `closure` are the graph's units `ops`."""
    block, step, layer, phase = (column.astype(np.int64) for column in (graph.block, graph.time_step, graph.layer.index, graph.phase.index))
    labels = {
        "ops": [np.arange(graph.num_ops)],
        "weights": [units(graph, "weights").unit.astype(np.int64)],
        "coarse": [units(graph, "coarse").unit.astype(np.int64)],
        "block": [block],
        "time step": [step],
        "block, time step": [block, step],
        "layer": [layer],
        "layer, time step": [layer, step],
        "block, phase": [block, phase],
        "layer, phase": [layer, phase],
    }
    found = [_grain(name, columns, closure) for name, columns in labels.items()]
    return tuple(grain for grain in found if grain.num_blocks > 1)


def _grain(name: str, columns: list[Int64[np.ndarray, " ops"]], closure: Units) -> Grain:
    """A unit belongs where its first op does; ops without one of the columns to no block."""
    first = np.zeros(closure.num_units, dtype=np.int64)
    first[closure.unit[::-1]] = np.arange(len(closure.unit))[::-1]
    rows = np.stack(columns, axis=1)[first]
    member = np.flatnonzero((rows != NONE).all(axis=1))
    if not len(member):
        return Grain(name, np.zeros(1, dtype=np.int64), member)
    _, label = np.unique(rows[member], axis=0, return_inverse=True)
    order = np.argsort(label.reshape(-1), kind="stable")
    ptr = np.searchsorted(label.reshape(-1)[order], np.arange(int(label.max()) + 2))
    return Grain(name, ptr.astype(np.int64), member[order])


def shares(grain: Grain, work: Float[np.ndarray, " units"]) -> Float[np.ndarray, " blocks"]:
    """How likely each block is drawn: half by its work, half evenly."""
    own = np.add.reduceat(work[grain.member], grain.ptr[:-1])
    return (own / max(1.0, float(own.sum())) + 1 / grain.num_blocks) / (1 + (own.sum() > 0))
