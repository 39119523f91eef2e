"""Simulated annealing over placements (Kirkpatrick, Gelatt and Vecchi, 1983), by moves of blocks at every grain.

A move sends a block (a colocation group, a layer, a time step, a layer at a time step ..., or a walk along edges) to a device, or has two
blocks change places. A few moves are evaluated together; they are looked at in the order in which they were drawn, and the first that is
accepted is the next placement. Temperatures are shares of the step time and fall geometrically with what is used of the budget.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64

from gnnplace.baselines.budget import Budget
from gnnplace.baselines.fastest import Standing, standing
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.adjacency import Adjacency, adjacency
from gnnplace.transforms.blocks import Grain, grains, shares
from gnnplace.transforms.units import Units, allowed, expand, unit_edges, units, work_ns

TOGETHER = 4  # moves evaluated at once
EXCHANGES = 0.2  # the share of moves that have two blocks change places
WALKS, KEEP_ON = 0.3, 0.8  # the share of blocks that are walks, and the chance that a walk goes on
HOT, COLD = 5e-3, 2e-4  # temperatures: a step longer by this share is accepted with a chance of 1 / e


class Moves(NamedTuple):
    """What moves are drawn from: the units of the colocation closure, where they may stand, who is next to whom, and their blocks with
    cumulated chances.
    """

    closure: Units
    legal: Bool[np.ndarray, "units devices"]
    beside: Adjacency
    grains: tuple[Grain, ...]
    cumulated: tuple[Float[np.ndarray, " blocks"], ...]


def annealing(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
) -> Placement:
    """The best placement that was met, never worse than `start`, a legal one. Raises ValueError where a unit may stand nowhere."""
    moves = _moves(problem)
    device = np.zeros(moves.closure.num_units, dtype=np.int32)
    device[moves.closure.unit] = start.device
    (result,) = evaluate(problem, [Placement(start.device, schedule)])
    budget.spent += 1
    here = best = standing(problem, result)
    best_device = device
    while moves.grains and (count := budget.allows(TOGETHER)):
        drawn = [_moved(moves, device, generator) for _ in range(count)]
        results = evaluate(problem, [Placement(expand(moves.closure, each), schedule) for each in drawn])
        budget.spent += count
        temperature = HOT * (COLD / HOT) ** min(1.0, budget.used)
        for moved, result in zip(drawn, results, strict=True):
            found = standing(problem, result)
            if _accepted(here, found, temperature, generator):
                device, here = moved, found
                if found < best:
                    best, best_device = found, moved
                break
    return Placement(expand(moves.closure, best_device), schedule)


def _moves(problem: Problem) -> Moves:
    closure = units(problem.graph, "ops")
    work = work_ns(problem, closure).min(axis=1).astype(np.float64)
    several = grains(problem.graph, closure) if problem.num_devices > 1 else ()
    edges = unit_edges(problem.graph, closure)
    beside = adjacency(edges, closure.num_units, edges.bytes.astype(np.float64))
    return Moves(closure, allowed(problem, closure), beside, several, tuple(np.cumsum(shares(grain, work)) for grain in several))


def _moved(moves: Moves, device: Int32[np.ndarray, " units"], generator: np.random.Generator) -> Int32[np.ndarray, " units"]:
    """Another placement of units; where a move takes a unit to where it may not stand, that one stays."""
    blocks = [_block(moves, generator) for _ in range(2)]
    moved = device.copy()
    if generator.random() < EXCHANGES:
        homes = [int(np.bincount(device[block]).argmax()) for block in blocks]
        targets = list(zip(blocks, reversed(homes), strict=True))
    else:
        targets = [(blocks[0], int(generator.integers(moves.legal.shape[1])))]
    for block, target in targets:
        moved[block] = np.where(moves.legal[block, target], target, device[block])
    return moved


def _block(moves: Moves, generator: np.random.Generator) -> Int64[np.ndarray, " members"]:
    """The units of one block of any grain, or of a walk from such a block's first."""
    number = int(generator.integers(len(moves.grains)))
    grain, cumulated = moves.grains[number], moves.cumulated[number]
    block = grain.block(min(int(np.searchsorted(cumulated, generator.random())), grain.num_blocks - 1))
    if generator.random() >= WALKS:
        return block
    unit, (ptr, neighbour, _) = int(block[0]), moves.beside
    walk = [unit]
    while ptr[unit] < ptr[unit + 1] and generator.random() < KEEP_ON:
        unit = int(neighbour[generator.integers(ptr[unit], ptr[unit + 1])])
        walk.append(unit)
    return np.unique(walk)


def _accepted(here: Standing, found: Standing, temperature: float, generator: np.random.Generator) -> bool:
    """Whether a placement replaces another (Metropolis et al., 1953); never one that overflows more, or is less feasible."""
    if found <= here:
        return True
    if found[:2] != here[:2]:
        return False
    return bool(generator.random() < math.exp((here[2] - found[2]) / (temperature * max(1, here[2]))))
