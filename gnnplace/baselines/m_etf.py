"""m-ETF: earliest task first under memory limits (Baechi; Jeon et al., SoCC 2020).

Among all pairs of a ready op and a device with enough memory, the pair with the earliest start is next. Transfers wait for their channels.
The paper leaves ties open; here they go by upward rank.

This version places units. The first op of a unit decides for the whole unit, and ops without cost go with their first consumer. A memory
has to hold the persistent bytes of its units; where the placement then overflows, also what Baechi counts beside them in training: results
and outputs that a later pass reads. The evaluator picks the better of two placements: on all devices and on accelerators alone.
"""

from __future__ import annotations

import numpy as np

from gnnplace.baselines.scheduling.earliest_first import fastest_earliest_first
from gnnplace.graph import NONE
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import UnitsName, units


def m_etf(problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path") -> Placement:
    """The faster of the two placements. Raises ValueError where a unit is allowed on no device."""
    no_favourites = np.full(problem.num_ops, NONE, dtype=np.int64)
    return fastest_earliest_first(problem, evaluate, units(problem.graph, units_name), no_favourites, schedule)
