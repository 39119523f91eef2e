"""Searches of one placement: a climb by ranked moves and annealing, learned or plain.

A learned climb ranks moves by the checkpoint that comes with the package and by `path_estimate` in turns, a plain one
by `path_estimate` alone. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnnplace import package_data
from gnnplace.baselines.annealing import Report, annealing
from gnnplace.baselines.improve import improve
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.searching.budget import Budget
from gnnplace.choices import SearchName
from gnnplace.moves.ranking import Ranking, read_ranking
from gnnplace.placement import Placement, Schedule, rule_of
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

SHIPPED = package_data.folder("checkpoints") / "improver.safetensors"  # trained on all lineages
# trained on the training and validation split only, for claims about the other lineages
HELD_OUT = SHIPPED.with_stem("improver-held-out")
LEARNED_DRAWN = 300  # moves among which a learned ranking chooses


def own_order(schedule: Schedule) -> Schedule:
    """The schedule under which a search keeps its start's priorities: the start's."""
    return schedule


@dataclass(frozen=True, eq=False)
class Searches:
    """The searches of one run, each from the same seed. `keeps` says under which schedule a search goes on."""

    evaluate: Evaluator
    seed: int
    search: SearchName
    keeps: Callable[[Schedule], Schedule] = rule_of

    def climbed(self, problem: Problem, start: Placement, budget: Budget, report: Report) -> Placement:
        ranks, drawn = ranks_of(self.search)
        return ranked_climb(
            problem, self.evaluate, np.random.default_rng(self.seed), start=start, budget=budget, report=report,
            ranks=ranks, drawn=drawn, schedule=self.keeps(start.schedule),
        )  # fmt: skip

    def annealed(self, problem: Problem, start: Placement, budget: Budget, report: Report) -> Placement:
        return annealing(
            problem, self.evaluate, np.random.default_rng(self.seed), start=start, budget=budget, report=report,
            schedule=self.keeps(start.schedule),
        )  # fmt: skip


def improved(
    problem: Problem, evaluate: Evaluator, rank: Rank, seed: int, budget: Budget, start: Placement | None = None
) -> Placement:
    """The result of a climb from `start`, or from starts of its own, that ranks moves by `rank`.

    `path_estimate` takes turns with `rank`.
    """
    schedule = None if start is None else rule_of(start.schedule)
    generator, ranks = np.random.default_rng(seed), (rank, path_estimate)
    return improve(
        problem, evaluate, generator, budget=budget, start=start, schedule=schedule, ranks=ranks, drawn=LEARNED_DRAWN
    )


def improved_by(
    search: SearchName, problem: Problem, evaluate: Evaluator, seed: int, budget: Budget, start: Placement
) -> Placement:
    """The result of one search, `learned` or `plain`, from `start`."""
    if search == "learned":
        return improved(problem, evaluate, shipped(), seed, budget, start)
    return improve(
        problem, evaluate, np.random.default_rng(seed), budget=budget, start=start, schedule=rule_of(start.schedule)
    )


def ranks_of(search: SearchName) -> tuple[Sequence[Rank], int]:
    """The rankings of a climb that take turns, and the number of moves among which they choose."""
    return ((path_estimate,), DRAWN) if search == "plain" else ((shipped(), path_estimate), LEARNED_DRAWN)


@cache
def shipped() -> Ranking:
    """The learned ranking that comes with the package.

    Raises ValueError (one line) if its file is damaged or of another version.
    """
    return read_ranking(SHIPPED)
