"""Moves of a search over placements: blocks of units at every grain, drawn where the step waits.

A move sends a block (a colocation group, a layer, a time step, a layer at a time step ..., or a walk along edges) to a device, mostly one
where a neighbour stands, or has two blocks change places. Half of the blocks hold a unit of the critical chain of the placement at hand, a
unit by how long the step waits for it; where memory overflows, a unit of the devices that are too small, by its bytes. The others are drawn
by their work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64, Shaped

from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.schedules.critical_chain import chain_ns
from gnnplace.units.adjacency import Adjacency, adjacency
from gnnplace.units.blocks import Grain, grains, shares
from gnnplace.units.units import Units, allowed, expand, output_bytes, persistent_bytes, unit_edges, units, work_ns

GUIDED = 0.5  # the share of blocks that are drawn where the step waits
EXCHANGES = 0.5  # the share of moves that have two blocks change places
BESIDE = 0.75  # of the other moves, the share that go to a neighbour's device
WALKS, KEEP_ON = 0.3, 0.8  # the share of blocks that are walks, and the chance that a walk goes on

Devices = Int32[np.ndarray, " units"]
Guide = Float[np.ndarray, " units"]  # cumulated chances of units


class Moves(NamedTuple):
    """What moves of a problem are drawn from: the units of the colocation closure, where they may stand, who is next to whom, and their
    blocks with cumulated chances; `block_of[grain][unit]` is the number of a unit's block, -1 where it is in none.
    """

    closure: Units
    legal: Bool[np.ndarray, "units devices"]
    work_ns: Int64[np.ndarray, "units devices"]
    bytes: Int64[np.ndarray, " units"]
    beside: Adjacency
    grains: tuple[Grain, ...]
    cumulated: tuple[Float[np.ndarray, " blocks"], ...]
    block_of: tuple[Int64[np.ndarray, " units"], ...]

    def start(self, placement: Placement) -> Devices:
        """Where the units of a placement stand: with their last op, or on their fastest device where they may not stand there."""
        device = np.zeros(self.closure.num_units, dtype=np.int32)
        device[self.closure.unit] = placement.device
        fastest = np.where(self.legal, self.work_ns, np.iinfo(np.int64).max).argmin(axis=1)
        return np.where(self.legal[np.arange(len(device)), device], device, fastest).astype(np.int32)

    def placement(self, device: Devices, schedule: Schedule) -> Placement:
        """The placement of ops that units make."""
        return Placement(expand(self.closure, device), schedule)


def moves(problem: Problem) -> Moves:
    """The moves of a problem; without grains there is none. Raises ValueError where a unit may stand nowhere."""
    closure = units(problem.graph, "ops")
    work = work_ns(problem, closure)
    several = grains(problem.graph, closure) if problem.num_devices > 1 else ()
    edges = unit_edges(problem.graph, closure)
    return Moves(
        closure=closure,
        legal=allowed(problem, closure),
        work_ns=work,
        bytes=persistent_bytes(problem.graph, closure) + output_bytes(problem.graph, closure),
        beside=adjacency(edges, closure.num_units, edges.bytes.astype(np.float64)),
        grains=several,
        cumulated=tuple(np.cumsum(shares(grain, work.min(axis=1).astype(np.float64))) for grain in several),
        block_of=tuple(_block_of(grain, closure.num_units) for grain in several),
    )


def guide(problem: Problem, moves: Moves, device: Devices, result: StepResult) -> Guide | None:
    """What the step of a placement, `result`, says of where to move: None where that has no timeline and no memory overflows."""
    unit = moves.closure.unit
    if result.peak_memory_bytes is not None and (over := result.peak_memory_bytes > problem.cluster.memory_bytes).any():
        weight = np.where(over[device], moves.bytes, 0)
    elif result.timeline is not None:
        weight = np.bincount(unit, weights=chain_ns(problem, device[unit], result.timeline), minlength=len(device))
    else:
        return None
    return np.cumsum(weight / weight.sum()) if weight.any() else None


def moved(moves: Moves, device: Devices, guide: Guide | None, generator: np.random.Generator) -> Devices:
    """Another placement of units; where a move takes a unit to where it may not stand, that one stays."""
    blocks = [_block(moves, guide, generator)]
    if generator.random() < EXCHANGES:
        blocks.append(_block(moves, guide, generator))
        targets = [int(np.bincount(device[block]).argmax()) for block in reversed(blocks)]
    else:
        targets = [_target(moves, device, blocks[0], generator)]
    there = device.copy()
    for block, target in zip(blocks, targets, strict=True):
        there[block] = np.where(moves.legal[block, target], target, device[block])
    return there


def _target(moves: Moves, device: Devices, block: Int64[np.ndarray, " members"], generator: np.random.Generator) -> int:
    """A device where a neighbour of one of the units stands and that unit does not; or any: where most of them stand they are gathered."""
    if generator.random() < BESIDE:
        unit = int(block[generator.integers(len(block))])
        near = device[moves.beside.neighbour[moves.beside.ptr[unit] : moves.beside.ptr[unit + 1]]]
        if len(elsewhere := near[near != device[unit]]):
            return int(elsewhere[generator.integers(len(elsewhere))])
    return int(generator.integers(moves.legal.shape[1]))


def _block(moves: Moves, guide: Guide | None, generator: np.random.Generator) -> Int64[np.ndarray, " members"]:
    """The units of one block of any grain, or of a walk from one of its units."""
    number = int(generator.integers(len(moves.grains)))
    grain = moves.grains[number]
    if guide is not None and generator.random() < GUIDED:
        unit = _drawn(guide, generator)
        of = int(moves.block_of[number][unit])
        block = np.array([unit]) if of < 0 else grain.block(of)
    else:
        block = grain.block(_drawn(moves.cumulated[number], generator))
        unit = int(block[0])
    return _walk(moves.beside, unit, generator) if generator.random() < WALKS else block


def _walk(beside: Adjacency, unit: int, generator: np.random.Generator) -> Int64[np.ndarray, " members"]:
    walk = [unit]
    while beside.ptr[unit] < beside.ptr[unit + 1] and generator.random() < KEEP_ON:
        unit = int(beside.neighbour[generator.integers(beside.ptr[unit], beside.ptr[unit + 1])])
        walk.append(unit)
    return np.unique(walk)


def _drawn(cumulated: Shaped[np.ndarray, " options"], generator: np.random.Generator) -> int:
    """The number of an option, by cumulated chances that end at 1 up to rounding."""
    return min(int(np.searchsorted(cumulated, generator.random(), side="right")), len(cumulated) - 1)


def _block_of(grain: Grain, num_units: int) -> Int64[np.ndarray, " units"]:
    number = np.full(num_units, -1, dtype=np.int64)
    number[grain.member] = np.repeat(np.arange(grain.num_blocks), np.diff(grain.ptr))
    return number
