"""The search for the base that a policy observes: a few first starts, then list schedules that feed back the fastest.

It is that of `baselines.own_starts`, one look at a time, with the fastest device alone and HEFT's ranks among the first
starts. A policy's own units stand where most of their work would: what it can't express is no base.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch

from gnnplace.baselines.own_starts import OTHERS, EvaluatedStart, OwnStart, OwnStarts
from gnnplace.baselines.sampled_lists import Settings, list_schedule
from gnnplace.baselines.sampled_stages import has_stages
from gnnplace.baselines.scheduling.list_schedule import LOADS, MESSAGES, OWN_END
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.policies.states import devices_of_units, fastest_device, unit_placements
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult
from gnnplace.units.units import Units, UnitsName


def _plain(units_name: UnitsName, view: int) -> Settings:
    """HEFT's ranks on all accelerators, without noise."""
    return Settings(
        units_name, share=1.0, view=view, downward=False, disturbed=0.0, by_unit=True, staged=0.0, kept=False
    )


FIRST = (_plain("weights", OWN_END), _plain("coarse", LOADS), _plain("weights", MESSAGES), _plain("ops", MESSAGES))


class Candidates(NamedTuple):
    """How many placements may become the base (0: there is none); the last `fed_back` of them feed back the fastest."""

    number: int = 0
    fed_back: int = 0

    @property
    def looks(self) -> int:
        """The steps of an episode that propose them: the first ones together, then one at a time."""
        return 1 + self.fed_back if self.number else 0


class BaseSearch(NamedTuple):
    """The looks so far, the starts whose results are to come, and the best of those before."""

    looks: int = 0
    waiting: tuple[OwnStart, ...] = ()
    best: EvaluatedStart | None = None

    def skipped(self) -> BaseSearch:
        """After a look that proposes nothing, as a base is there."""
        return self._replace(looks=self.looks + 1)

    def heard(self, problem: Problem, results: Sequence[StepResult]) -> BaseSearch:
        """After the results of the last look."""
        if not self.waiting:
            return self
        best = OwnStarts(problem, np.random.default_rng(0), None).best(self.waiting, results)
        before = () if self.best is None else (self.best,)
        return self._replace(waiting=(), best=min(*before, best, key=itemgetter(0)) if before else best)

    def next(self, problem: Problem, units: Units, candidates: Candidates, schedule: Schedule) -> BaseSearch:
        """After the proposals of the next look, the same for every call.

        Starts of a step of several micro-batches have orders of their own, and the last ones are the fastest in other
        orders; all others have the `schedule`. Raises ValueError if a unit of ops is allowed on no device.
        """
        stages = has_stages(problem)
        starts = OwnStarts(problem, np.random.default_rng([0, self.looks]), None if stages else schedule)
        first, left = candidates.number - candidates.fed_back, candidates.looks - self.looks
        if self.best is None:
            proposed = _first(starts, first, schedule)
        elif stages and left <= OTHERS:
            proposed = starts.reordered(self.best, OTHERS if left == OTHERS else 0)
        elif self.best.precedent is None:
            proposed = [starts.random(first + self.looks)]
        else:
            proposed = [starts.fed_back(self.best.precedent)]
        return self._replace(looks=self.looks + 1, waiting=_by_units(problem, units, proposed))


def best_candidate(
    problem: Problem, units: Units, candidates: Candidates, schedule: Schedule, evaluate: Evaluator
) -> EvaluatedStart:
    """The best of all candidates: the base that a policy of these `units` and this `schedule` observes first."""
    search = BaseSearch()
    while search.looks < candidates.looks:
        search = search.next(problem, units, candidates, schedule)
        if search.waiting:
            tried = [start.placement for start in search.waiting]
            search = search.heard(problem, evaluate(problem, tried, timeline=True))
    assert search.best is not None
    return search.best


def _first(starts: OwnStarts, count: int, schedule: Schedule) -> list[OwnStart]:
    """The fastest device alone, the lists of `FIRST`, then random starts."""
    problem = starts.problem
    around = neighbourhood(problem)
    alone = around.start(Placement(np.full(problem.num_ops, fastest_device(problem), np.int32), schedule))
    lists = [OwnStart(each, list_schedule(problem, each, starts.generator, schedule)) for each in FIRST[: count - 1]]
    others = [starts.random(number) for number in range(count - 1 - len(FIRST))]
    return [OwnStart(_plain("weights", OWN_END), around.placement(alone, schedule)), *lists, *others]


def _by_units(problem: Problem, units: Units, starts: Sequence[OwnStart]) -> tuple[OwnStart, ...]:
    if not starts:
        return ()
    whole = torch.from_numpy(np.stack([devices_of_units(problem, units, each.placement) for each in starts]))
    placed = unit_placements(units, whole, starts[0].placement.schedule)
    return tuple(
        each._replace(placement=scheduled(placement, each.placement.schedule))
        for each, placement in zip(starts, placed, strict=True)
    )
