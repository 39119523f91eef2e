"""m-ETF: earliest task first under memory limits (Baechi; Jeon et al., SoCC 2020).

Of all pairs of a ready op and a device with room for it, the one with the earliest start is next; messages wait for their channels.
Equal starts, which the paper leaves open, go by upward rank.

Ours places units: the first op of a unit decides for all of it, and ops that cost nothing stand with their first consumer. Memory is
what units keep for the whole step (Baechi also counts the outputs that live: what lives is for the evaluator to say). The better of
two by the evaluator: on all devices and on accelerators.
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
    """The faster of the two variants. Raises ValueError where a unit may stand nowhere."""
    no_favourites = np.full(problem.num_ops, NONE, dtype=np.int64)
    return fastest_earliest_first(problem, evaluate, units(problem.graph, units_name), no_favourites, schedule)
