"""The fastest placement and its schedule, proved where that is possible, by constraint programming (CP-SAT of OR-Tools).

`solve` proves: no simulated step of any feasible placement of these units, under any schedule, is shorter than its `bound_ns`
(`cp_sat/model.py` says why). What its placement takes is for the simulator to say: a list schedule never idles on purpose, so it may be
slower than the program's own schedule. `exact` is the planner: it starts from HEFT, the single devices and a placement that is known,
and what it gives is never slower. A problem too large to solve is contracted first; then nothing is proved.
"""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Int32

from gnnplace.baselines.cp_sat.contracted import by_start, contracted, lifted
from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.heft import heft
from gnnplace.baselines.legal import legalised
from gnnplace.isolation import python
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, LeastTimes, StepResult
from gnnplace.units.units import UnitsName, expand, units

MAX_CHOICES = 600  # ops x devices of the largest program that is solved as it is
CONTRACTED_CHOICES = 1000  # parts x devices that a larger one is contracted to


@dataclass(frozen=True)
class Limit:
    """How long to search: so much work as takes about as many seconds, the same work on every machine; or wall-clock seconds."""

    seconds: float = 10.0
    deterministic: bool = True


@dataclass(frozen=True)
class Start:
    """A simulated step to begin with: a search that has time to look at it never ends with a longer schedule."""

    device: Int32[np.ndarray, " ops"]
    result: StepResult


@dataclass(frozen=True)
class Solution:
    """What CP-SAT found. `placement` has its order as priorities, `step_time_ns` is its own schedule's; both are None where it found none.

    `bound_ns` is below every simulated step. `proved`: the search is complete, and the two times are equal; or, without a placement,
    none is feasible.
    """

    placement: Placement | None
    step_time_ns: int | None
    bound_ns: int
    proved: bool


def exact(
    problem: Problem,
    evaluate: Evaluator,
    *,
    start: Placement | None = None,
    least_times: Callable[[Problem], LeastTimes] | None = None,
    limit: Limit = Limit(),
    units_name: UnitsName = "ops",
    schedule: Schedule = "critical-path",
) -> Placement:
    """The fastest of what CP-SAT finds, of `start`, HEFT's and each device alone; with the schedule `given`, each in its own order.

    `evaluate` simulates the problem's own costs. `start` keeps units whole. What `least_times` says of a problem saves the search
    from finding it. Raises ValueError where a unit may stand nowhere.
    """
    known = fastest(problem, [*([] if start is None else [start]), _known(problem, evaluate, units_name)], evaluate)
    if problem.num_ops * problem.num_devices <= MAX_CHOICES:
        begin, least = _start(problem, evaluate, known), least_times and least_times(problem)
        found = solve(problem, limit, units_name=units_name, start=begin, least=least).placement
    else:
        small = contracted(problem, units(problem.graph, "coarse" if units_name == "ops" else units_name), CONTRACTED_CHOICES)
        begin = _start(small.problem, evaluate, _known(small.problem, evaluate, "ops"))
        part = solve(small.problem, limit, start=begin, least=least_times and least_times(small.problem)).placement
        found = None if part is None else lifted(problem, small, part)
    candidates = [known] if found is None else [found, known]
    return fastest(problem, [option for one in candidates for option in _under(problem, one, schedule)], evaluate)


def solve(
    problem: Problem, limit: Limit, *, units_name: UnitsName = "ops", start: Start | None = None, least: LeastTimes | None = None
) -> Solution:
    """`cp_sat.search.search` in a process of its own. Raises ValueError where a unit may stand nowhere, RuntimeError where it dies."""
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump((problem, limit, units_name, start, least), process.stdin)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
    except (EOFError, BrokenPipeError):
        raise RuntimeError(f"CP-SAT on {problem.graph.name}: its process ended with {process.wait()}") from None
    except BaseException:
        process.kill()  # nobody would listen to its answer
        process.wait()
        raise
    finally:
        if process.poll() is not None:
            _process.cache_clear()
    if isinstance(answer, ValueError):
        raise answer
    return answer


@cache
def _process() -> subprocess.Popen[bytes]:
    """A process that searches; it ends with its stdin, and so with us."""
    command = python.command("-c", f"from {__package__}.cp_sat import search; search.main()")
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=python.environment())


def _known(problem: Problem, evaluate: Evaluator, units_name: UnitsName) -> Placement:
    """The fastest of HEFT and of each device alone, units whole: what a search begins with."""
    made = units(problem.graph, units_name)
    alone = [expand(made, legalised(problem, made, np.full(made.num_units, device))) for device in range(problem.num_devices)]
    return fastest(problem, [heft(problem, evaluate, units_name=units_name), *map(Placement, alone)], evaluate)


def _start(problem: Problem, evaluate: Evaluator, placement: Placement) -> Start:
    return Start(placement.device, evaluate(problem, [placement], timeline=True)[0])


def _under(problem: Problem, placement: Placement, schedule: Schedule) -> list[Placement]:
    """The placement under a schedule; with the schedule `given`, by its own order and by what remains behind each op."""
    if schedule != "given":
        return [Placement(placement.device, schedule)]
    by_rank = by_start(problem, placement.device, np.zeros(problem.num_ops, dtype=np.int64))
    return [by_rank] if placement.priority is None else [placement, by_rank]
