"""Random placements of what a problem keeps together."""

from __future__ import annotations

import numpy as np

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.units import colocation_closure


def random_parts(problem: Problem, seed: int) -> Placement:
    """Each colocation group on a random device that is allowed for all of it."""
    group, generator = colocation_closure(problem.graph), np.random.default_rng(seed)
    may = np.ones((problem.num_ops, problem.num_devices), dtype=bool)
    np.logical_and.at(may, group, problem.allowed)
    drawn = np.where(may, generator.random(may.shape), -1.0).argmax(axis=1)
    return Placement(drawn[group].astype(np.int32))
