"""More is never worse: at equal evaluations `best` is given twice the memory, or an idle device more, on random problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from growing.problems import Growth, pair

from gnnplace import portfolio
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Score
from gnnplace.simulator.simulator import simulate

PAIRS, EVALUATIONS, WORSE = 100, (120, 300), 1.05


@dataclass(frozen=True)
class Case:
    """A pair of problems of a kind, at some evaluations."""

    kind: Growth
    seed: int
    evaluations: int

    @property
    def name(self) -> str:
        return f"problem {self.seed}, {self.evaluations} evaluations"

    def broken(self, folder: Path) -> str | None:
        """None where the larger problem's step takes at most `WORSE` of the smaller one's, and fits where that fits."""
        small, large = (_best(posed, self.evaluations) for posed in pair(self.kind, self.seed))
        worse = large.step_time_ns > WORSE * small.step_time_ns
        if small.feasibility == FEASIBLE and (large.feasibility != FEASIBLE or worse):
            return f"{small} became {large}"
        return None


def cases() -> Iterator[Case]:
    """Every pair at each number of evaluations."""
    for kind in get_args(Growth):
        for seed in range(PAIRS):
            for evaluations in EVALUATIONS:
                yield Case(kind, seed, evaluations)


def _best(posed: Problem, evaluations: int) -> Score:
    return portfolio.portfolio(posed, simulate, 0, portfolio.budget(posed, evaluations=evaluations), "given").score
