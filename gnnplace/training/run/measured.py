"""The result of training on measurements: the policy's best placement against the simulator's choice.

Both are measured again, in turns.

The candidates are all placements that were measured in the run, single devices and the best heuristic's among them. The
simulator's choice is the fastest of all by simulation. The policy's best is the fastest of its own placements by
measurement; a placement that a heuristic proposed first is not its own. It is chosen in two rounds, because the fastest
of many noisy medians is too low: the `FINALISTS` fastest are measured again in turns. The winner meets the simulator's
choice in fresh measurements of both.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gnnplace.execution.evaluator import POLICY, MeasuredEvaluator
from gnnplace.execution.timing import Estimate, estimate, ratio
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.best import Best
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import fastest

FINALISTS = 5


class Compared(NamedTuple):
    """The comparison of one problem.

    `outcome` is that of the measurement, `finalists` that of the round before; if that fails, the fastest at first
    sight stands for the policy. `faster` is the time of the simulator's choice over the policy's.
    """

    label: str
    candidates: int
    outcome: str
    finalists: str = "ok"
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
        return (
            "worse than the simulator's choice"
            if self.faster.high < 1
            else "no difference from the simulator's choice shown"
        )

    def line(self) -> str:
        """For people."""
        if self.faster is None or self.policy_ns is None or self.simulator_ns is None:
            return f"{self.verdict} ({self._measured})"
        medians = " against ".join(
            terminal.milliseconds(round(time.median)) for time in (self.policy_ns, self.simulator_ns)
        )
        times = f"{self.faster.median:.3f}x [{self.faster.low:.3f}, {self.faster.high:.3f}]"
        return f"{self.verdict}: {medians}, {times} ({self._measured})"

    @property
    def _measured(self) -> str:
        failed = "" if self.finalists == "ok" else f"; not measured again: {self.finalists}"
        return f"{self.candidates} placements measured{failed}"

    def document(self) -> dict[str, Any]:
        """For programs."""
        named = {
            key: value._asdict() if isinstance(value, Estimate) else value for key, value in self._asdict().items()
        }
        return named | {"verdict": self.verdict}

    def metrics(self) -> dict[str, float]:
        """For the tracking."""
        figures = {"candidates": float(self.candidates)}
        for name in ("policy_ns", "simulator_ns", "faster"):
            value: Estimate | None = getattr(self, name)
            if value is not None:
                figures |= {f"{name}_{part}": figure for part, figure in value._asdict().items()}
        return {f"{self.label}/measured/{name}": figure for name, figure in figures.items()}


def compared(lesson: Lesson, best: Best | None, evaluate: MeasuredEvaluator) -> tuple[Compared, Placement | None]:
    """The comparison of a problem, from new or kept measurements, and the policy's winner, if there is one."""
    problem, placements = lesson.problem, evaluate.measured(lesson.problem)
    if best is None:
        return Compared(lesson.label, len(placements), "the policy found nothing feasible"), None
    chosen, _ = fastest(list(zip(placements, simulate(problem, placements), strict=True)))
    winner, finalists = best.placement, "ok"
    try:
        winner = _winner(problem, best, evaluate)
    except MeasurementError as failed:
        finalists = str(failed)
    comparison = partial(Compared, lesson.label, len(placements), finalists=finalists)
    if evaluate.key(problem, chosen) == evaluate.key(problem, winner):
        return comparison("ok", same=True), winner
    try:
        policy, simulator = evaluate.compare(problem, [winner, chosen], "comparison")
    except MeasurementError as failed:
        return comparison(str(failed)), winner
    return comparison(
        "ok", policy_ns=estimate(policy), simulator_ns=estimate(simulator), faster=ratio(simulator, policy)
    ), winner


def _winner(problem: Problem, best: Best, evaluate: MeasuredEvaluator) -> Placement:
    """The fastest of the policy's finalists in a second measurement; of equals the policy's best so far."""
    placements = {
        evaluate.key(problem, placement): placement
        for placement in (*evaluate.measured(problem, POLICY), best.placement)
    }
    results = zip(placements, evaluate(problem, list(placements.values())), strict=True)
    finalists = [
        key
        for _, key in sorted((result.feasible_ns, key) for key, result in results if result.feasible_ns is not None)[
            :FINALISTS
        ]
    ]
    if len(finalists) == 1:
        return best.placement
    times = evaluate.compare(problem, [placements[key] for key in finalists], "finalists")
    medians = {key: float(np.median(samples)) for key, samples in zip(finalists, times, strict=True)}
    return placements[min(finalists, key=lambda key: (medians[key], placements[key] is not best.placement))]
