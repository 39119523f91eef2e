"""Random search: the fastest of many placements with each unit on a uniformly random accelerator.

A unit that is allowed on no accelerator goes to a random CPU.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int32

from gnnplace.baselines.legal import on_accelerators
from gnnplace.baselines.single import fastest
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import UnitsName, allowed, expand, units

BATCH = 64  # placements evaluated together


def random_units(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    units_name: UnitsName = "coarse",
    evaluations: int = 64,
    schedule: Schedule = "critical-path",
) -> Placement:
    """The fastest of `evaluations` draws.

    Raises ValueError if a unit is allowed on no device, or if `evaluations` is less than 1.
    """
    grouping = units(problem.graph, units_name)
    legal = on_accelerators(problem, allowed(problem, grouping))
    best: list[Placement] = []
    for start in range(0, evaluations, BATCH):
        drawn = draw(legal, min(BATCH, evaluations - start), generator)
        placements = [Placement(device, schedule) for device in expand(grouping, drawn)]
        best = [fastest(problem, [*best, *placements], evaluate)]
    if not best:
        raise ValueError(f"evaluations: {evaluations} is less than 1")
    return best[0]


def draw(
    legal: Bool[np.ndarray, "units devices"], samples: int, generator: np.random.Generator
) -> Int32[np.ndarray, "samples units"]:
    """A uniformly random allowed device for every unit of every sample."""
    chosen = np.floor(generator.random((samples, len(legal))) * legal.sum(axis=1)).astype(np.int64)
    ordered = np.argsort(~legal, axis=1, kind="stable")  # allowed devices first
    return ordered[np.arange(len(legal)), chosen].astype(np.int32)
