"""Placements of one problem by several planners, each simulated, the fastest feasible first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.report import terminal
from gnnplace.report.terminal import Progress
from gnnplace.result import Planner, StepResult
from gnnplace.simulator.simulator import simulate


@dataclass(frozen=True, eq=False)
class Candidate:
    """What a planner proposed, what it takes under its schedule and under `fifo`, and how long the planner thought."""

    planner: str
    placement: Placement
    result: StepResult
    fifo: StepResult
    planning_ns: int


def candidates(problem: Problem, planners: Mapping[str, Planner], schedule: Schedule, progress: Progress) -> list[Candidate]:
    """A candidate of every planner under a schedule, in the order of `ranked`."""
    found = []
    for name, planner in planners.items():
        start = time.perf_counter_ns()
        proposed = planner(problem)
        found.append(candidate(problem, name, planned(proposed, schedule), time.perf_counter_ns() - start))
        step = terminal.milliseconds(found[-1].result.step_time_ns)
        progress(f"{name}: {found[-1].result.infeasible or step}, planned in {terminal.milliseconds(found[-1].planning_ns)}")
    return ranked(found)


def candidate(problem: Problem, planner: str, placement: Placement, planning_ns: int) -> Candidate:
    """A placement simulated."""
    result, fifo = simulate(problem, [placement, scheduled(placement, "fifo")])
    return Candidate(planner, placement, result, fifo, planning_ns)


def ranked(found: list[Candidate]) -> list[Candidate]:
    """The fastest feasible first, then the infeasible; equals as they came."""
    return sorted(found, key=lambda candidate: _rank(candidate.result))


def planned(placement: Placement, schedule: Schedule) -> Placement:
    """What a planner proposed, under a schedule; where that is `given`, in its own order or under the schedule that it planned for."""
    return placement if schedule == "given" else scheduled(placement, schedule)


def scheduled(placement: Placement, schedule: Schedule) -> Placement:
    """The same devices under a schedule; its priorities stay for `given` alone."""
    return Placement(placement.device, schedule, placement.priority if schedule == "given" else None)


def _rank(result: StepResult) -> tuple[bool, bool, int]:
    return result.infeasible is not None, result.step_time_ns is None, result.step_time_ns or 0
