"""What planners propose: a placement with its simulated step.

Candidates of one problem are compared by their scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.constraints import Constrained
from gnnplace.formats.placements import Predicted, predicted
from gnnplace.fused import Fused
from gnnplace.placement import Placement, scheduled
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, StepResult, score
from gnnplace.simulator.simulator import simulate

if TYPE_CHECKING:
    import pandas as pd

Identity = tuple[bytes, str, bytes | None, bytes | None]  # of a placement: devices, schedule, priorities and fusion
BY_SCORE = attrgetter("score")


@dataclass(frozen=True, eq=False)
class Candidate:
    """What a planner proposes: a placement, its step, and what that scores.

    `planning_ns` is how long the planner took, 0 where nobody measured it. No step of the problem without fused ops is
    shorter than `proved_ns`, as searches on the way proved; 0 where none did. A planner that `failed` proposes nothing:
    the reason is `result.infeasible`, and `placement` is a placeholder.
    """

    planner: str
    placement: Placement
    result: StepResult
    score: Score
    planning_ns: int = 0
    proved_ns: int = 0
    failed: bool = False

    @property
    def step_time_ns(self) -> int | None:
        """The step time, None where the placement is infeasible."""
        return self.result.feasible_ns

    def fifo(self, problem: Problem) -> StepResult:
        """The step under the schedule `fifo`, which frameworks have; `result` itself where the planner failed."""
        return self.result if self.failed else simulate(problem, [scheduled(self.placement, "fifo")])[0]

    def proved(self, problem: Problem) -> bool:
        """Whether it is proved that no placement is faster, by the lower bound or a search that was complete."""
        fused = self.placement.fusion is not None
        known_ns = max(lower_bound(problem, fused), 0 if fused else self.proved_ns)
        return self.step_time_ns is not None and self.step_time_ns <= known_ns

    def predicted(self, problem: Problem) -> Predicted:
        """The step as documents describe it, with the lower bound of its
        problem; where ops run fused, that of every fusion.
        """
        fused = self.placement.fusion is not None
        return predicted(problem.cluster, self.result, lower_bound(problem, fused), bound_name(problem, fused))

    def row(self, problem: Problem) -> dict[str, Any]:
        """A row for programs: the step, its metrics, how long planning took, whether no placement is faster."""
        return {
            "planner": self.planner,
            "schedule": self.result.schedule,
            **self.predicted(problem).model_dump(exclude={"bound_ns", "bound"}),
            "planning_ns": self.planning_ns,
            "fifo_step_time_ns": self.fifo(problem).step_time_ns,
            "proved": self.proved(problem),
        }


def candidate(problem: Problem, evaluate: Evaluator, planner: str, placement: Placement) -> Candidate:
    """A placement as the planner of a name proposes it, evaluated."""
    (result,) = evaluate(problem, [placement])
    return Candidate(planner, placement, result, score(problem, result))


def failed(problem: Problem, planner: str, why: str, planning_ns: int) -> Candidate:
    """The candidate of a planner that failed."""
    placement, nothing = (
        Placement(np.zeros(problem.num_ops, dtype=np.int32)),
        np.zeros(problem.num_devices, dtype=np.int64),
    )
    result = StepResult(placement.schedule, None, why, None, nothing, transferred_bytes=0, transfers=0)
    return Candidate(planner, placement, result, score(problem, result), planning_ns, failed=True)


def identity(placement: Placement) -> Identity:
    """What is equal of equal placements, and differs of others."""
    priority, fusion = (
        None if values is None else values.tobytes() for values in (placement.priority, placement.fusion)
    )
    return placement.device.tobytes(), placement.schedule, priority, fusion


def of_whole(proposed: Candidate, under: Constrained) -> Candidate:
    """A candidate of a problem under a constraint as one of the whole problem."""
    whole = candidate(under.whole, simulate, proposed.planner, under.of_whole(proposed.placement))
    return replace(
        whole, planning_ns=proposed.planning_ns, proved_ns=proposed.proved_ns if under.problem is under.whole else 0
    )


def expanded(proposed: Candidate, fused: Fused) -> Candidate:
    """A candidate of a fused problem as one of all ops: its name says so."""
    return replace(proposed, planner=f"{proposed.planner}, fused", placement=fused.expanded(proposed.placement))


def ranked(proposed: Sequence[Candidate]) -> list[Candidate]:
    """The fastest feasible first, then the infeasible; equals as they came."""
    return sorted(proposed, key=lambda candidate: _rank(candidate.result))


def _rank(result: StepResult) -> tuple[bool, bool, int]:
    return result.infeasible is not None, result.step_time_ns is None, result.step_time_ns or 0


def table(problem: Problem, candidates: Sequence[Candidate]) -> pd.DataFrame:
    """Candidates of a problem, a row each in their order: graph, cluster, bound, step time, metrics; what each device
    does in columns of its own (`busy_ns.gpu:0`).

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
        "bound_ns": lower_bound(problem),
    }
    import pandas as pd  # a quarter of a second, which only tables for programs need

    return pd.json_normalize([where | candidate.row(problem) for candidate in candidates])
