"""What experiments measure on: problems of the corpus, the step time of a placement, and every heuristic's."""

from __future__ import annotations

import gnnplace as gp
from gnnplace.placement import Placement
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate


def problem_of(graph: str, cluster: str) -> Problem:
    """A graph of the corpus on a preset, with roofline costs."""
    return gp.problem(graph, cluster)


def time_ns(problem: Problem, placement: Placement) -> int | None:
    """The simulated step time, None where the placement is infeasible."""
    return simulate(problem, [placement])[0].feasible_ns


def heuristics(problem: Problem) -> dict[str, Placement]:
    """The placement of every planner but the searches, under the critical-path schedule."""
    named = planners.planners(problem, simulate, 0)
    return {name: plan(problem) for name, plan in named.items() if name not in planners.SEARCHES}


def heuristics_ns(problem: Problem) -> dict[str, int | None]:
    """The step times of these placements."""
    return {name: time_ns(problem, placement) for name, placement in heuristics(problem).items()}
