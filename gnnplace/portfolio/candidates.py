"""Candidates: placements that planners propose, with their simulated steps. Their scores are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnplace.bounds.bounds import bound_name, bound_of_forms, bound_of_forms_name, lower_bound
from gnnplace.constraints import Constrained
from gnnplace.formats.placements import Predicted, predicted
from gnnplace.fused import Fused
from gnnplace.placement import Placement, scheduled
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, StepResult, score
from gnnplace.simulator.simulator import simulate

if TYPE_CHECKING:
    import pandas as pd

Identity = tuple[bytes, str, bytes | None, bytes | None]  # devices, schedule, priorities and fusion of a placement
BY_SCORE = attrgetter("score")


@dataclass(frozen=True, eq=False)
class Candidate:
    """The placement that a planner proposes, its step, and its score.

    `planning_ns` is the time that the planner took, 0 if it was not measured. `proved_ns` is a lower bound on every
    step of the problem without fused ops, which a search has proved, 0 if none has. For a planner that `failed`, the
    reason is `result.infeasible`, and `placement` is a placeholder. `form` is the problem that was placed, if it is
    another form of the one that was given (`Proposal`). `rivals` are the candidates of rules that `best` has asked for
    a step of several micro-batches.
    """

    planner: str
    placement: Placement
    result: StepResult
    score: Score
    planning_ns: int = 0
    proved_ns: int = 0
    failed: bool = False
    form: Problem | None = None
    rivals: tuple[Candidate, ...] = ()

    @property
    def step_time_ns(self) -> int | None:
        """The step time; None if the placement is infeasible."""
        return self.result.feasible_ns

    def fifo(self, problem: Problem) -> StepResult:
        """The step under the schedule `fifo`, which frameworks use; `result` itself if the planner failed."""
        placed = self.form or problem
        return self.result if self.failed else simulate(placed, [scheduled(self.placement, "fifo")])[0]

    def proved(self, problem: Problem) -> bool:
        """Whether a lower bound or a complete search proves that no placement is faster."""
        fused = self.placement.fusion is not None
        bound_ns = max(lower_bound(self.form or problem, fused), 0 if fused else self.proved_ns)
        return self.step_time_ns is not None and self.step_time_ns <= bound_ns

    def predicted(self, problem: Problem) -> Predicted:
        """The step as documents describe it, with the lower bound of its problem.

        If ops run fused, the bound is one for every fusion.
        """
        fused, problem = self.placement.fusion is not None, self.form or problem
        bound_ns, bound = lower_bound(problem, fused), bound_name(problem, fused)
        return predicted(problem.cluster, self.result, bound_ns, bound, problem.graph.micro_batches)

    def row(self, problem: Problem) -> dict[str, Any]:
        """A row for programs: the step, its metrics beside `bound_of_all`, the planning time, whether it is proved."""
        bound_ns, bound = bound_of_all(problem, self.placement.fusion is not None)
        step = predicted(problem.cluster, self.result, bound_ns, bound, problem.graph.micro_batches)
        return {
            "planner": self.planner,
            "schedule": self.result.schedule,
            **step.model_dump(exclude={"bound_ns", "bound"}, exclude_unset=True),
            "planning_ns": self.planning_ns,
            "fifo_step_time_ns": self.fifo(problem).step_time_ns,
            "proved": self.proved(problem),
        }


def candidate(problem: Problem, evaluate: Evaluator, planner: str, placement: Placement) -> Candidate:
    """The candidate of a planner's placement, evaluated."""
    (result,) = evaluate(problem, [placement])
    return Candidate(planner, placement, result, score(problem, result))


def failed(problem: Problem, planner: str, why: str, planning_ns: int) -> Candidate:
    """The candidate of a planner that failed."""
    placement, idle = Placement(np.zeros(problem.num_ops, np.int32)), np.zeros(problem.num_devices, np.int64)
    result = StepResult(placement.schedule, None, why, None, idle, transferred_bytes=0, transfers=0)
    return Candidate(planner, placement, result, score(problem, result), planning_ns, failed=True)


def identity(placement: Placement) -> Identity:
    """A key that is equal for equal placements only."""
    priority, fusion = (
        None if values is None else values.tobytes() for values in (placement.priority, placement.fusion)
    )
    return placement.device.tobytes(), placement.schedule, priority, fusion


def of_whole(proposed: Candidate, under: Constrained) -> Candidate:
    """The candidate of the whole problem, in its form, that a candidate of the constrained problem means.

    Its rivals stay those of the constrained problem.
    """
    if under.problem is under.whole:
        return proposed
    placed = under if proposed.form is None else under.formed(proposed.form)
    whole = candidate(placed.whole, simulate, proposed.planner, placed.of_whole(proposed.placement))
    return replace(
        whole, planning_ns=proposed.planning_ns, form=None if proposed.form is None else placed.whole,
        rivals=proposed.rivals,
    )  # fmt: skip


def expanded(proposed: Candidate, fused: Fused) -> Candidate:
    """The candidate of the original problem that a candidate of the fused problem means; its name gets ", fused"."""
    return replace(proposed, planner=f"{proposed.planner}, fused", placement=fused.expanded(proposed.placement))


def ranked(proposed: Sequence[Candidate]) -> list[Candidate]:
    """The candidates sorted: feasible ones by step time, then infeasible ones; ties keep their order."""
    return sorted(proposed, key=lambda candidate: _rank(candidate.result))


def _rank(result: StepResult) -> tuple[bool, bool, int]:
    return result.infeasible is not None, result.step_time_ns is None, result.step_time_ns or 0


def leaves_form(problem: Problem) -> bool:
    """Whether a problem leaves its form open: several micro-batches, one replica, copies together."""
    copies = problem.graph.copies
    return copies is not None and copies.replicas == 1 and copies.placed == "together"


def bound_of_all(problem: Problem, fused: bool = False) -> tuple[int, str]:
    """A lower bound in ns on the steps of all candidates whose ops are, or are not, `fused`, and its name.

    Candidates of a problem that leaves its form open may have any form, so the bound holds for every form. Fused ones
    have the form that is given.
    """
    if leaves_form(problem) and not fused:
        return bound_of_forms(problem), bound_of_forms_name(problem)
    return lower_bound(problem, fused), bound_name(problem, fused)


def table(problem: Problem, candidates: Sequence[Candidate]) -> pd.DataFrame:
    """A table with a row for each candidate: graph, cluster, bound, step time, metrics.

    Values for each device have columns of their own (`busy_ns.gpu:0`).

    >>> import gnnplace as gp
    >>> problem = gp.problem("dlrm", cluster="k40-2")
    >>> rows = gp.table(problem, gp.compare(problem, evaluations=10))
    >>> bool(rows.step_time_ns.min() == rows.step_time_ns[0]), "peak_memory_bytes.gpu:0" in rows
    (True, True)
    """
    where = {
        "graph": problem.graph.name,
        "cluster": problem.cluster.name,
        "ops": problem.num_ops,
        "bound_ns": bound_of_all(problem)[0],
    }
    import pandas as pd  # a quarter of a second, which only tables for programs need

    return pd.json_normalize([where | candidate.row(problem) for candidate in candidates])
