"""HEFT: list scheduling by upward rank and earliest finish time, with insertion (Topcuoglu, Hariri and Wu, 2002).

This version places units. The first op of a unit, in the order of ranks, decides for the whole unit, by the earliest
finish time of the unit's work; the other ops are scheduled in their turn. Ops without cost (variables, reads,
constants) go with their first consumer.

The evaluator picks the best of six variants: three estimates of the finish time, each on all devices and on
accelerators alone. The estimates are the published one; the published one plus the channel time of the unit's
transfers, which others have to wait for; and this one with the pending work of units placed earlier.
"""

from __future__ import annotations

from gnnplace.baselines.scheduling.instance import Guide
from gnnplace.baselines.scheduling.list_schedule import fastest_schedule
from gnnplace.baselines.scheduling.ranks import upward_rank_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import UnitsName, units


def heft(
    problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path"
) -> Placement:
    """The fastest placement of the six variants. Raises ValueError if a unit is allowed on no device."""
    grouping = units(problem.graph, units_name)
    guide = Guide(sequence(problem.graph, upward_rank_ns(problem)))
    return fastest_schedule(problem, evaluate, grouping, lambda legal: guide, schedule)
