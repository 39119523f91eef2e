"""A placement without learning, for policies that don't place: units one after another, each where its work would end first."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.policies.observations import OBSERVATIONS, PartialPlacements
from gnnplace.policies.unit_tables import unit_tables
from gnnplace.problems import Problem
from gnnplace.schedules.unit_order import decision_order
from gnnplace.units.units import Units, allowed

FINISH, MEMORY = OBSERVATIONS.index("finish"), OBSERVATIONS.index("memory")


def list_placement(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """The device of every unit, in the order in which work can start; devices without room for all that a unit holds come last."""
    order, legal = decision_order(problem, units), allowed(problem, units)
    partial = PartialPlacements(unit_tables(problem, units, order), 1)
    for may in legal[order]:
        (observed,) = partial.observe()
        full = np.where(observed[:, MEMORY] > 1, 1.0, 0.0)
        partial.place(np.lexsort((observed[:, FINISH], full, ~may))[:1])
    device = np.empty(units.num_units, np.int64)
    device[order] = partial.device[0]
    return device
