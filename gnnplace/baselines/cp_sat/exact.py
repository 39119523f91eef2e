"""An optimal placement and schedule by constraint programming (CP-SAT of OR-Tools), with a proof if it completes.

`solve` proves a lower bound `bound_ns` on every simulated step of every feasible placement of the given units, under
any schedule (`cp_sat/model.py` has the argument). The simulated step of its placement may be longer than the schedule
of the program, because a simulated device never idles on purpose.

`exact` is the planner. It starts from a given placement, or else from HEFT and each device alone, and its result is
never slower. A result with a proof is `Proved`. A problem that is too large to solve is contracted; its result has no
proof.
"""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from jaxtyping import Int32

from gnnplace.baselines.cp_sat.contracted import by_start, contracted, lifted
from gnnplace.baselines.heft import heft
from gnnplace.baselines.legal import legalised
from gnnplace.baselines.single import fastest
from gnnplace.isolation import python
from gnnplace.isolation.worker import unexpected_end
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, LeastTimes, StepResult
from gnnplace.units.units import UnitsName, expand, units

MAX_CHOICES = 600  # ops x devices of the largest problem that is solved without contraction
CONTRACTED_CHOICES = 1000  # parts x devices to which a larger problem is contracted
# (edges and their outputs) x links of the largest problem that is searched; its program is written in 3 s
MOST_CARRIED = 100_000


@dataclass(frozen=True)
class Limit:
    """The length of a search: `seconds` of work that is the same on every machine (`deterministic`), or of a clock."""

    seconds: float = 10.0
    deterministic: bool = True


@dataclass(frozen=True)
class Start:
    """The start of a search: a placement and its simulated step.

    If the search has time to read it, its schedule is never longer.
    """

    device: Int32[np.ndarray, " ops"]
    result: StepResult


@dataclass(frozen=True)
class Solution:
    """The result of CP-SAT.

    `placement` has the order of ops as priorities, and `step_time_ns` is the length of the program's own schedule. Both
    are None if the search finds no placement. `bound_ns` is a lower bound on every simulated step. If the search is
    complete (`proved`), both times are equal; without a placement, no placement is then feasible.
    """

    placement: Placement | None
    step_time_ns: int | None
    bound_ns: int
    proved: bool


@dataclass(frozen=True, eq=False)
class Proved(Placement):
    """A placement with a proof that no step of the problem is shorter than `bound_ns`, under any schedule."""

    bound_ns: int = field(kw_only=True)


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
    """The faster of the result of CP-SAT and `start`.

    Without `start`, the search starts from the fastest of HEFT's placement and each device alone. Under the schedule
    `given`, each placement has its own priorities. `evaluate` must simulate the costs of the problem. `start` must not
    split units. The bounds of `least_times` shorten the search. Raises ValueError if a unit is allowed on no device.
    """
    incumbent = _incumbent(problem, evaluate, units_name) if start is None else start
    if problem.num_ops * problem.num_devices <= MAX_CHOICES and _searchable(problem):
        begin, least = _start(problem, evaluate, incumbent), least_times and least_times(problem)
        solution = solve(problem, limit, units_name=units_name, start=begin, least=least)
        placement, bound_ns = solution.placement, solution.bound_ns
    else:
        small = contracted(
            problem, units(problem.graph, "coarse" if units_name == "ops" else units_name), CONTRACTED_CHOICES
        )
        part = _solved(small.problem, evaluate, limit, least_times) if _searchable(small.problem) else None
        placement, bound_ns = None if part is None else lifted(problem, small, part), 0
    candidates = [incumbent] if placement is None else [placement, incumbent]
    best = fastest(problem, [option for one in candidates for option in _under(problem, one, schedule)], evaluate)
    return Proved(best.device, best.schedule, best.priority, bound_ns=bound_ns) if bound_ns else best


def _searchable(problem: Problem) -> bool:
    """Whether the program is small enough to write: every edge and output has a few constraints for each link."""
    carried = problem.graph.num_edges + len(np.unique(problem.graph.edge_data))
    return carried * len(problem.cluster.links) <= MOST_CARRIED


def _solved(
    problem: Problem, evaluate: Evaluator, limit: Limit, least_times: Callable[[Problem], LeastTimes] | None
) -> Placement | None:
    begin = _start(problem, evaluate, _incumbent(problem, evaluate, "ops"))
    return solve(problem, limit, start=begin, least=least_times and least_times(problem)).placement


def solve(
    problem: Problem,
    limit: Limit,
    *,
    units_name: UnitsName = "ops",
    start: Start | None = None,
    least: LeastTimes | None = None,
) -> Solution:
    """The result of `cp_sat.search.search` in a child process.

    Raises ChildProcessError if the child fails, and the ValueError of `search`.
    """
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump((problem, limit, units_name, start, least), process.stdin)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        with suppress(BrokenPipeError):  # closing flushes data that the child has not read
            process.stdin.close()
        raise ChildProcessError(unexpected_end("the process of CP-SAT", process.wait()).reason) from None
    except BaseException:
        process.kill()  # nobody would read its answer
        process.wait()
        raise
    finally:
        if process.poll() is not None:
            _process.cache_clear()
    if isinstance(answer, Exception):
        raise answer
    return answer


@cache
def _process() -> subprocess.Popen[bytes]:
    """The child process that searches. It ends when its stdin closes, at the latest with this process."""
    command = python.command("-m", f"{__package__}.child")
    pipe = subprocess.PIPE
    # a process group of its own, so that Ctrl-C interrupts only this process
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=python.environment(), process_group=0)


def _incumbent(problem: Problem, evaluate: Evaluator, units_name: UnitsName) -> Placement:
    """The start of a search: the fastest of HEFT's placement and each device alone, with whole units."""
    grouping = units(problem.graph, units_name)
    alone = [
        expand(grouping, legalised(problem, grouping, np.full(grouping.num_units, device)))
        for device in range(problem.num_devices)
    ]
    return fastest(problem, [heft(problem, evaluate, units_name=units_name), *map(Placement, alone)], evaluate)


def _start(problem: Problem, evaluate: Evaluator, placement: Placement) -> Start:
    return Start(placement.device, evaluate(problem, [placement], timeline=True)[0])


def _under(problem: Problem, placement: Placement, schedule: Schedule) -> list[Placement]:
    """The placement under a schedule. Under `given` there are two: with its own priorities (if any) and with ranks."""
    if schedule != "given":
        return [Placement(placement.device, schedule)]
    by_rank = by_start(problem, placement.device, np.zeros(problem.num_ops, dtype=np.int64))
    return [by_rank] if placement.priority is None else [placement, by_rank]
