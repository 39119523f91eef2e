"""Hill climbing over units: a batch of neighbours a round, the best one is the next placement unless it is worse.

A neighbour moves one unit, or a few that are linked, to another device. The improvements of a round are also tried all together
in the next one. The start is not cut into units: what it splits stays split until a move takes the whole unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64

from gnnplace.baselines.fastest import Standing, standing
from gnnplace.baselines.legal import on_accelerators
from gnnplace.baselines.random_units import draw
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.units import Units, UnitsName, allowed, expand, unit_edges, units

BATCH = 16  # neighbours evaluated together
KEEP_ON = 0.5  # the chance that a move takes one more unit along


class Neighbourhood(NamedTuple):
    """What moves are drawn from: units by their share of the work, their neighbours (CSR), and where they may stand."""

    units: Units
    legal: Bool[np.ndarray, "units devices"]
    share: Float[np.ndarray, " units"]
    ptr: Int64[np.ndarray, " units_plus_1"]
    neighbour: Int64[np.ndarray, " neighbours"]


class Found(NamedTuple):
    """A placement of ops and how it stands."""

    device: Int32[np.ndarray, " ops"]
    standing: Standing


def hill_climb(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement | None = None,
    units_name: UnitsName = "coarse",
    evaluations: int = 1000,
    schedule: Schedule = "critical-path",
) -> Placement:
    """The end of a climb of `evaluations` from `start`, or from the best of a batch drawn at random (as `random_units` draws).

    Raises ValueError where a unit may stand nowhere, or for no evaluations.
    """
    if evaluations < 1:
        raise ValueError(f"evaluations: {evaluations} is less than 1")
    around = _neighbourhood(problem, units(problem.graph, units_name))
    candidates = (
        [start.device]
        if start
        else list(expand(around.units, draw(on_accelerators(problem, around.legal), min(BATCH, evaluations), generator)))
    )
    here = min(_evaluated(problem, candidates, evaluate, schedule), key=lambda found: found.standing)
    left = evaluations - len(candidates)
    together: list[Int32[np.ndarray, " ops"]] = []
    while left > 0:
        moved = [_neighbour(around, here.device, generator) for _ in range(min(BATCH, left) - len(together))]
        found = _evaluated(problem, [*together, *moved], evaluate, schedule)
        left -= len(found)
        better = sorted((one for one in found if one.standing < here.standing), key=lambda one: one.standing)
        together = [_together(here.device, better)] if len(better) > 1 else []
        best = min(found, key=lambda one: one.standing)
        here = best if best.standing <= here.standing else here
    return Placement(here.device, schedule)


def _neighbourhood(problem: Problem, units: Units) -> Neighbourhood:
    edges = unit_edges(problem.graph, units)
    ends = np.unique(np.concatenate([np.stack([edges.src, edges.dst], axis=1), np.stack([edges.dst, edges.src], axis=1)]), axis=0)
    ptr = np.searchsorted(ends[:, 0], np.arange(units.num_units + 1)).astype(np.int64)
    work = np.bincount(units.unit, weights=problem.time_ns.min(axis=1), minlength=units.num_units)
    share = (work / work.sum() + 1 / units.num_units) / 2  # half by work, half evenly
    return Neighbourhood(units, allowed(problem, units), share, ptr, ends[:, 1].astype(np.int64))


def _neighbour(around: Neighbourhood, device: Int32[np.ndarray, " ops"], generator: np.random.Generator) -> Int32[np.ndarray, " ops"]:
    """A walk of units, each sent to the device drawn for the first wherever it is allowed there."""
    unit = int(generator.choice(len(around.share), p=around.share))
    taken = [unit]
    while generator.random() < KEEP_ON and around.ptr[unit] < around.ptr[unit + 1]:
        unit = int(around.neighbour[generator.integers(around.ptr[unit], around.ptr[unit + 1])])
        taken.append(unit)
    first = np.flatnonzero(around.units.unit == taken[0])
    options = np.flatnonzero(around.legal[taken[0]])
    elsewhere = options[options != device[first[0]]] if len(options) > 1 else options
    target = elsewhere[generator.integers(len(elsewhere))]
    moves = np.isin(around.units.unit, [unit for unit in taken if around.legal[unit, target]])
    return np.where(moves, target, device).astype(np.int32)


def _together(device: Int32[np.ndarray, " ops"], better: Sequence[Found]) -> Int32[np.ndarray, " ops"]:
    """Every improvement in one placement; where two disagree, the greater one."""
    merged = device.copy()
    for one in reversed(better):
        changed = one.device != device
        merged[changed] = one.device[changed]
    return merged


def _evaluated(problem: Problem, devices: Sequence[Int32[np.ndarray, " ops"]], evaluate: Evaluator, schedule: Schedule) -> list[Found]:
    results = evaluate(problem, [Placement(device, schedule) for device in devices])
    return [Found(device, standing(problem, result)) for device, result in zip(devices, results, strict=True)]
