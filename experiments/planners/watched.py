"""What a planner spends: the simulator, which keeps what every evaluation took, and when it was done."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate

from experiments.cells import Cell
from gnnplace.baselines.searching.clock import processor_s
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate

NEAR = 1.05  # of the planner's own best
POINTS = 50  # of a curve
NEVER = 2**63 - 1


class Watched:
    """The simulator, which keeps the step time of every evaluation (None: infeasible), and the processor seconds until it was done."""

    def __init__(self) -> None:
        self.times: list[int | None] = []
        self.seconds: list[float] = []
        self._start = processor_s()

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        found = simulate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        self.times += [result.feasible_ns for result in found]
        self.seconds += [self.passed] * len(found)
        return found

    @property
    def passed(self) -> float:
        """The processor seconds of this process so far, without those of compiling."""
        return processor_s() - self._start

    def cell(self, budget: int) -> Cell:
        """What was found for how much. Raises ValueError where more was evaluated than the budget allows."""
        if len(self.times) > budget:
            raise ValueError(f"evaluations: {len(self.times)} of a budget of {budget}")
        known = [each for each in self.times if each is not None]
        made: Cell = {
            "evaluations": len(self.times), "infeasible": len(self.times) - len(known), "seconds": self.passed,
            "best_ns": min(known, default=None), "median_ns": int(statistics.median(known)) if known else None,
            "curve": curve(self.times, budget),
        }  # fmt: skip
        if known:
            near = next(place for place, each in enumerate(self.times) if each is not None and each <= NEAR * min(known))
            made |= {"near_evaluations": near + 1, "near_seconds": self.seconds[near]}
        return made


def curve(times: Sequence[int | None], budget: int) -> Cell:
    """After every so many evaluations the best so far, and the mean of the feasible ones since the point before."""
    size = -(-budget // POINTS)
    ends = [min(start + size, len(times)) for start in range(0, len(times), size)]
    best = list(accumulate((NEVER if each is None else each for each in times), min))
    blocks = [[each for each in times[start:end] if each is not None] for start, end in zip([0, *ends], ends, strict=False)]
    return {
        "evaluations": ends,
        "best_ns": [None if best[end - 1] == NEVER else best[end - 1] for end in ends],
        "mean_ns": [int(statistics.fmean(block)) if block else None for block in blocks],
    }
