"""A search of the improver as a picture: the step that it starts from, what each evaluation took, and the step that it ends with.

python -m experiments.zero_shot.picture [GRAPH] [CLUSTER] [--evaluations N]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.problems import problem_of
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import lower_bound
from gnnplace.moves.ranking import read_ranking
from gnnplace.placement import Placement
from gnnplace.portfolio import searches
from gnnplace.problems import Problem
from gnnplace.report import picture
from gnnplace.report.picture import save
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "improver.png"


class Watched:
    """The simulator, which keeps what each placement took, and every one that was the best so far."""

    def __init__(self) -> None:
        self.times: list[int | None] = []
        self.best: list[tuple[int, Placement]] = []

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        found = simulate(problem, placements, timeline=timeline)
        for placement, result in zip(placements, found, strict=True):
            self.times.append(result.feasible_ns)
            if result.feasible_ns is not None and (not self.best or result.feasible_ns < self.best[-1][0]):
                self.best.append((result.feasible_ns, placement))
        return found


def draw(problem: Problem, evaluations: int) -> Figure:
    """Three rows: the step before, the evaluations, the step after."""
    watched = Watched()
    placement = searches.improved(problem, watched, read_ranking(searches.HELD_OUT), 0, Budget(evaluations=evaluations))
    lists = int(0.375 * evaluations)
    first = min((time, place) for place, time in enumerate(watched.times[:lists]) if time is not None)[0]
    start = next(each for time, each in watched.best if time == first)
    figure = Figure(figsize=(12, 3 + 1.2 * problem.num_devices), layout="tight")
    rows = figure.subplots(3, 1, height_ratios=[problem.num_devices, 3, problem.num_devices])
    for axes, each, title in ((rows[0], start, "the fastest of the list schedules"), (rows[2], placement, "after the moves")):
        (result,) = simulate(problem, [each], timeline=True)
        assert result.timeline is not None and result.step_time_ns is not None
        picture.draw(axes, problem, each, result.timeline)
        axes.set_xlim(0, first / 1e6)
        axes.set_title(f"{title}: {result.step_time_ns / 1e6:,.1f} ms", loc="left", fontsize=10)
    times = np.array([np.nan if time is None else time / 1e6 for time in watched.times])
    rows[1].plot(times, ".", color="grey", label="evaluated")
    rows[1].step(range(len(times)), np.fmin.accumulate(times), where="post", color="C3", label="best so far")
    rows[1].axhline(lower_bound(problem) / 1e6, color="black", linewidth=0.8, linestyle=":", label="bound")
    rows[1].axvline(lists - 0.5, color="grey", linewidth=0.8)
    rows[1].set(xlabel="evaluations: list schedules, then moves", ylabel="ms", ylim=(0, 1.6 * first / 1e6))
    rows[1].legend(fontsize=8, loc="lower left", ncols=3, frameon=False)
    figure.suptitle(f"{problem.graph.name} ({problem.num_ops:,} ops) on {problem.cluster.name}", fontsize=11)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", nargs="?", default="dlrm")
    parser.add_argument("cluster", nargs="?", default="k40-4")
    parser.add_argument("--evaluations", type=int, default=64)
    chosen = parser.parse_args()
    save(draw(problem_of(chosen.graph, chosen.cluster), chosen.evaluations), PICTURE)
    print(f"written to {PICTURE}")


if __name__ == "__main__":
    main()
