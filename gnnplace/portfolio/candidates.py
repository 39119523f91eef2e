"""Placements of one problem by several planners, each simulated; and the portfolio's, which is never slower than any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnplace.baselines.cp_sat.exact import proved_ns
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.bounds.shortage import shortage
from gnnplace.choices import BEST, SEARCH, SearchName
from gnnplace.constraints import Constrained, Constraint, Stages, constrained
from gnnplace.formats import strict_json
from gnnplace.formats.placements import Predicted, predicted
from gnnplace.fused import Fused
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.portfolio import planners, portfolio
from gnnplace.portfolio.rounds import Progress
from gnnplace.portfolio.stages import staged
from gnnplace.problems import Problem
from gnnplace.result import Planner, StepResult, known
from gnnplace.simulator.simulator import simulate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Candidate:
    """What a planner proposes: its step under its own schedule (`result`) and under `fifo`, and how long the planner took.

    A planner that `failed` proposes nothing: the reason is `result.infeasible`, and `placement` is none that anybody found.
    """

    planner: str
    placement: Placement
    result: StepResult
    fifo: StepResult
    planning_ns: int
    failed: bool = False

    @property
    def step_time_ns(self) -> int | None:
        """The step time, None where the placement is infeasible."""
        return self.result.feasible_ns

    def proved(self, problem: Problem) -> bool:
        """Whether it is proved that no placement is faster, by the lower bound or a search that was complete."""
        fused = self.placement.fusion is not None
        known_ns = max(lower_bound(problem, fused), 0 if fused else proved_ns(problem))
        return self.step_time_ns is not None and self.step_time_ns <= known_ns

    def predicted(self, problem: Problem) -> Predicted:
        """The step as documents describe it, with the lower bound of its problem; where ops run fused, that of every fusion."""
        fused = self.placement.fusion is not None
        return predicted(problem.cluster, self.result, lower_bound(problem, fused), bound_name(problem, fused))

    def row(self, problem: Problem) -> dict[str, Any]:
        """A row for programs: the step, its metrics, how long planning took, whether no placement is faster."""
        return {
            "planner": self.planner,
            "schedule": self.result.schedule,
            **self.predicted(problem).model_dump(exclude={"bound_ns", "bound"}),
            "planning_ns": self.planning_ns,
            "fifo_step_time_ns": self.fifo.step_time_ns,
            "proved": self.proved(problem),
        }


Say = Callable[[Candidate], object]


def table(problem: Problem, found: Sequence[Candidate]) -> pd.DataFrame:
    """Candidates of a problem, a row each in their order: graph, cluster, bound, step time, metrics; what each device does in columns of
    its own (`busy_ns.gpu:0`).

    >>> import gnnplace as gp
    >>> problem = gp.problem("dlrm", cluster="k40-2")
    >>> rows = gp.table(problem, gp.compare(problem, evaluations=10))
    >>> bool(rows.step_time_ns.min() == rows.step_time_ns[0]), "peak_memory_bytes.gpu:0" in rows
    (True, True)
    """
    where = {"graph": problem.graph.name, "cluster": problem.cluster.name, "ops": problem.num_ops, "bound_ns": lower_bound(problem)}
    import pandas as pd  # a quarter of a second, which only tables for programs need

    return pd.json_normalize([where | candidate.row(problem) for candidate in found])


def candidate(problem: Problem, planner: str, placement: Placement, planning_ns: int) -> Candidate:
    """A placement simulated under its own schedule and under `fifo`."""
    result, fifo = simulate(problem, [placement, scheduled(placement, "fifo")])
    return Candidate(planner, placement, result, fifo, planning_ns)


def candidates(problem: Problem, asked: Mapping[str, Planner], schedule: Schedule, say: Say = lambda candidate: None) -> list[Candidate]:
    """What each planner proposes under a schedule, the fastest feasible first; `say` hears of each as it comes.

    A planner whose process dies is infeasible, and the others go on.
    """
    found = []
    for name, planner in asked.items():
        start = time.perf_counter_ns()
        try:
            placement = planned(planner(problem), schedule)
        except ChildProcessError as error:
            found.append(_failed(problem, name, str(error), time.perf_counter_ns() - start))
        else:
            found.append(candidate(problem, name, placement, time.perf_counter_ns() - start))
        say(found[-1])
    return ranked(found)


def best(
    problem: Problem,
    budget: Budget,
    seed: int = 0,
    schedule: Schedule = "given",
    *,
    policy: Planner | None = None,
    starts: Mapping[str, Planner] | None = None,
    search: SearchName = SEARCH,
    progress: Progress = lambda planner, score: None,
    stages: Stages | None = None,
) -> Candidate:
    """The winner of `portfolio.portfolio`, whose arguments these are, named `best: ` and whose placement it is."""

    def asked(problem: Problem) -> Placement:
        assert policy is not None
        return planned(policy(problem), schedule)

    start, own = time.perf_counter_ns(), None if policy is None else asked
    winner = portfolio.portfolio(problem, simulate, seed, budget, schedule, own, progress, starts, search, stages)
    return candidate(problem, f"{BEST}: {winner.planner}", winner.placement, time.perf_counter_ns() - start)


def compared(
    problem: Problem,
    budget: Budget,
    seed: int = 0,
    schedule: Schedule = "critical-path",
    *,
    more: Mapping[str, Planner] | None = None,
    say: Say = lambda candidate: None,
    progress: Progress = lambda planner, score: None,
    stages: Stages | None = None,
) -> list[Candidate]:
    """Every planner's placement, those of `more`, and the portfolio's, which begins with them: it is never slower, nothing is planned
    twice. The fastest feasible first. Where `stages` are binding, it is the nearest ones to what each planner but the searches proposes.
    """
    asked = asked_planners(problem, seed, schedule, stages) | {name: staged(plan, stages) for name, plan in (more or {}).items()}
    found = candidates(problem, asked, schedule, say)
    starts = {each.planner: known(each.placement) for each in found if not each.failed}
    return ranked([best(problem, budget, seed, schedule, starts=starts, progress=progress, stages=stages), *found])


def asked_planners(problem: Problem, seed: int, schedule: Schedule, stages: Stages | None) -> dict[str, Planner]:
    """Every planner by name, with stages where there are any (`planners.with_stages`)."""
    return planners.with_stages(problem, stages, planners.planners(problem, simulate, seed, schedule), simulate, schedule)


def planner_named(name: str, problem: Problem, seed: int, schedule: Schedule, stages: Stages | None) -> Planner:
    """The planner that a user names, with stages where there are any. Raises ValueError with the names that there are."""
    if name in planners.missing():
        raise ValueError(f"planner {name!r}: {planners.missing()[name]}")
    named = asked_planners(problem, seed, schedule, stages)
    if name not in named:
        raise ValueError(strict_json.unknown("planner", name, (BEST, *named)))
    return named[name]


def said(found: Candidate, under: Constrained) -> Candidate:
    """A candidate of a problem under a constraint as one of the whole problem."""
    return candidate(under.whole, found.planner, under.said(found.placement), found.planning_ns)


def priced(found: Sequence[Candidate], free: Sequence[Candidate]) -> dict[str, int | None]:
    """Of each planner under a constraint its step time without, None where that is infeasible; `best` by that name, whoever won."""
    times = {_first_name(each): each.step_time_ns for each in free}
    return {each.planner: times[_first_name(each)] for each in found if _first_name(each) in times}


def _first_name(found: Candidate) -> str:
    return found.planner.partition(": ")[0]


def not_fitting(problem: Problem, under: Problem, constraint: Constraint) -> str | None:
    """A proof that nothing fits `under` a constraint, with the finer one that nothing speaks against; None where none is found."""
    if (proof := shortage(under)) is None:
        return None
    for finer in (*constraint.finer(), Constraint()):
        if finer != constraint and shortage(constrained(problem, finer).problem) is None:
            return f"{proof}; nothing speaks against {str(finer) or 'a placement without constraint'}"
    return str(proof)


def ranked(found: list[Candidate]) -> list[Candidate]:
    """The fastest feasible first, then the infeasible; equals as they came."""
    return sorted(found, key=lambda candidate: _rank(candidate.result))


def expanded(found: Candidate, made: Fused) -> Candidate:
    """A candidate of a fused problem as one of all ops: its name says so."""
    return replace(found, planner=f"{found.planner}, fused", placement=made.expanded(found.placement))


def planned(placement: Placement, schedule: Schedule) -> Placement:
    """What a planner proposed, under a schedule; where that is `given`, in its own order or under the schedule that it planned for."""
    return placement if schedule == "given" else scheduled(placement, schedule)


def _failed(problem: Problem, planner: str, why: str, planning_ns: int) -> Candidate:
    placement, nothing = Placement(np.zeros(problem.num_ops, dtype=np.int32)), np.zeros(problem.num_devices, dtype=np.int64)
    result = StepResult(placement.schedule, None, why, None, nothing, transferred_bytes=0, transfers=0)
    return Candidate(planner, placement, result, result, planning_ns, failed=True)


def _rank(result: StepResult) -> tuple[bool, bool, int]:
    return result.infeasible is not None, result.step_time_ns is None, result.step_time_ns or 0
