"""HEFT: list scheduling by upward rank and earliest finish time, with insertion (Topcuoglu, Hariri and Wu, 2002).

Ours places units: the first op of a unit, in the order of ranks, decides for all of it, by the time at which the unit's work could
end; its other ops follow when their turn comes. Ops that cost nothing (variables, reads, constants) stand with their first consumer.
The best of six by the evaluator, on all devices and on accelerators: as published; with what messages cost those who wait for their
channel; and with the load, too, that earlier units will still bring.
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


def heft(problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path") -> Placement:
    """The fastest of the six variants. Raises ValueError where a unit may stand nowhere."""
    made = units(problem.graph, units_name)
    guide = Guide(sequence(problem.graph, upward_rank_ns(problem)))
    return fastest_schedule(problem, evaluate, made, lambda legal: guide, schedule)
