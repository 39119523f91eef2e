"""Moves of a local search over placements: they move blocks of units, mostly where the step waits.

A block is a colocation group, a layer, a time step, a layer at a time step and so on, or a random walk along edges. A move sends a block to
a device, mostly the device of a neighbour, or exchanges the devices of two blocks. Half of the blocks contain a unit of the critical chain,
drawn by the time that the step waits for it. Where memory overflows, they contain a unit of an overflowing device, drawn by its bytes. The
other blocks are drawn by their work.
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
from gnnplace.units.units import Units, allowed, expand, held_bytes, unit_edges, units, work_ns

GUIDED = 0.5  # the share of blocks that are drawn by the guide
EXCHANGES = 0.5  # the share of moves that exchange two blocks
BESIDE = 0.75  # the share of the other moves that go to a neighbour's device
WALKS, KEEP_ON = 0.3, 0.8  # the share of blocks that are walks, and the probability that a walk goes on

Devices = Int32[np.ndarray, " units"]
Guide = Float[np.ndarray, " units"]  # cumulative probabilities of units


class Moves(NamedTuple):
    """The moves of a problem: the units `ops` with their allowed devices and neighbours, and the blocks of each grain.

    `cumulated` has the cumulative probabilities of the blocks of each grain. `block_of[grain][unit]` is the block of a unit, -1 for none.
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
        """The device of each unit in a placement: that of its last op, or the fastest allowed device if that one is not allowed."""
        device = np.zeros(self.closure.num_units, dtype=np.int32)
        device[self.closure.unit] = placement.device
        fastest = np.where(self.legal, self.work_ns, np.iinfo(np.int64).max).argmin(axis=1)
        return np.where(self.legal[np.arange(len(device)), device], device, fastest).astype(np.int32)

    def placement(self, device: Devices, schedule: Schedule) -> Placement:
        """The placement of all ops from the devices of units."""
        return Placement(expand(self.closure, device), schedule)


def moves(problem: Problem) -> Moves:
    """The moves of a problem; none exist if `grains` is empty. Raises ValueError where a unit is allowed on no device."""
    closure = units(problem.graph, "ops")
    work = work_ns(problem, closure)
    several = grains(problem.graph) if problem.num_devices > 1 else ()
    edges = unit_edges(problem.graph, closure)
    return Moves(
        closure=closure,
        legal=allowed(problem, closure),
        work_ns=work,
        bytes=held_bytes(problem.graph, closure),
        beside=adjacency(edges, closure.num_units, edges.bytes.astype(np.float64)),
        grains=several,
        cumulated=tuple(np.cumsum(shares(grain, work.min(axis=1).astype(np.float64))) for grain in several),
        block_of=tuple(_block_of(grain, closure.num_units) for grain in several),
    )


def guide(problem: Problem, moves: Moves, device: Devices, result: StepResult) -> Guide | None:
    """The guide of a placement from its `result`: None where that has no timeline and no memory overflows."""
    unit = moves.closure.unit
    if result.peak_memory_bytes is not None and (over := result.peak_memory_bytes > problem.cluster.memory_bytes).any():
        weight = np.where(over[device], moves.bytes, 0)
    elif result.timeline is not None:
        weight = np.bincount(unit, weights=chain_ns(problem, device[unit], result.timeline), minlength=len(device))
    else:
        return None
    return np.cumsum(weight / weight.sum()) if weight.any() else None


def moved(moves: Moves, device: Devices, guide: Guide | None, generator: np.random.Generator) -> Devices:
    """The placement of units after a random move. A unit stays where the target device is not allowed for it."""
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
    """Mostly the device of a neighbour of one of the units, if it is not that unit's device; else any device."""
    if generator.random() < BESIDE:
        unit = int(block[generator.integers(len(block))])
        near = device[moves.beside.neighbour[moves.beside.ptr[unit] : moves.beside.ptr[unit + 1]]]
        if len(elsewhere := near[near != device[unit]]):
            return int(elsewhere[generator.integers(len(elsewhere))])
    return int(generator.integers(moves.legal.shape[1]))


def _block(moves: Moves, guide: Guide | None, generator: np.random.Generator) -> Int64[np.ndarray, " members"]:
    """The units of a random block, or of a walk from one of its units."""
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
    """A random option by cumulative probabilities, whose last entry is 1 up to rounding."""
    return min(int(np.searchsorted(cumulated, generator.random(), side="right")), len(cumulated) - 1)


def _block_of(grain: Grain, num_units: int) -> Int64[np.ndarray, " units"]:
    number = np.full(num_units, -1, dtype=np.int64)
    number[grain.member] = np.repeat(np.arange(grain.num_blocks), np.diff(grain.ptr))
    return number
