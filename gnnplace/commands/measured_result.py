"""What training on measurements came to: the policy's best placement against the simulator's choice, both measured again, in turns.

The candidates are all placements that were measured in the run, the teacher's among them. The policy's is the fastest of its own by
measurement; the simulator's choice is the fastest of all by simulation. A fresh measurement of both, because the fastest of many noisy
medians is flattered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gnnplace.commands import terminal
from gnnplace.evaluate.simulator import simulate
from gnnplace.execution.evaluator import MeasuredEvaluator
from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.timing import Estimate, estimate, ratio
from gnnplace.training.best import Best
from gnnplace.training.data import Lesson
from gnnplace.training.rollout import fastest


class Compared(NamedTuple):
    """The comparison of one problem; `outcome` is that of the measurement, `faster` the simulator's choice's time over the policy's."""

    label: str
    candidates: int
    outcome: str
    same: bool = False
    policy_ns: Estimate | None = None
    simulator_ns: Estimate | None = None
    faster: Estimate | None = None

    @property
    def verdict(self) -> str:
        """Whether the measured median improved, as far as the interval tells."""
        if self.same:
            return "the policy's best is the simulator's choice"
        if self.faster is None:
            return f"not compared: {self.outcome}"
        if self.faster.low > 1:
            return "improved over the simulator's choice"
        return "worse than the simulator's choice" if self.faster.high < 1 else "no difference from the simulator's choice shown"

    def line(self) -> str:
        """For people."""
        if self.faster is None or self.policy_ns is None or self.simulator_ns is None:
            return f"{self.verdict} ({self.candidates} placements measured)"
        medians = " against ".join(terminal.milliseconds(round(each.median)) for each in (self.policy_ns, self.simulator_ns))
        times = f"{self.faster.median:.3f}x [{self.faster.low:.3f}, {self.faster.high:.3f}]"
        return f"{self.verdict}: {medians}, {times} ({self.candidates} placements measured)"

    def document(self) -> dict[str, Any]:
        """For programs."""
        named = {key: value._asdict() if isinstance(value, Estimate) else value for key, value in self._asdict().items()}
        return named | {"verdict": self.verdict}

    def metrics(self) -> dict[str, float]:
        """For the tracking."""
        found = {"candidates": float(self.candidates)}
        for name in ("policy_ns", "simulator_ns", "faster"):
            value: Estimate | None = getattr(self, name)
            if value is not None:
                found |= {f"{name}_{part}": figure for part, figure in value._asdict().items()}
        return {f"{self.label}/measured/{name}": figure for name, figure in found.items()}


def compared(lesson: Lesson, best: Best | None, evaluate: MeasuredEvaluator) -> Compared:
    """Measures the two placements of a problem, or finds what was measured of them before."""
    problem, placements = lesson.problem, evaluate.measured(lesson.problem)
    if best is None:
        return Compared(lesson.label, len(placements), "the policy found nothing feasible")
    chosen, _ = fastest(list(zip(placements, simulate(problem, placements), strict=True)))
    if evaluate.key(problem, chosen) == evaluate.key(problem, best.placement):
        return Compared(lesson.label, len(placements), "ok", same=True)
    try:
        policy, simulator = evaluate.compare(problem, best.placement, chosen)
    except MeasurementError as failed:
        return Compared(lesson.label, len(placements), str(failed))
    return Compared(lesson.label, len(placements), "ok", False, estimate(policy), estimate(simulator), ratio(simulator, policy))
