"""Controls of a policy's samples: the fastest of as many placements that nothing has learned.

Parts are METIS's, of coarse units, as a Grouper is taught them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Int64

from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.random_units import BATCH, draw
from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest, on_each
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.clustering import clustering
from gnnplace.policies.placing.turns import soft_placement
from gnnplace.policies.states import unit_placements
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import allowed, units

PARTS = 32
SCHEDULE: Schedule = "critical-path"
Control = Callable[[Problem, int, np.random.Generator], Placement]


def random_parts(problem: Problem, evaluations: int, generator: np.random.Generator) -> Placement:
    """The fastest of so many placements with each part on a random accelerator."""
    of_parts = Parts(problem)
    legal = np.zeros((PARTS, problem.num_devices), bool)
    legal[:, problem.cluster.accelerators] = True
    best: list[Placement] = []
    for first in range(0, evaluations, BATCH):
        drawn = draw(legal, min(BATCH, evaluations - first), generator)
        best = [fastest(problem, [*best, *of_parts.placed(drawn)], simulate)]
    return best[0]


def climbed_parts(problem: Problem, evaluations: int, generator: np.random.Generator) -> Placement:
    """From the fastest device alone: one part at a time to another accelerator, kept where the step is no longer."""
    of_parts, accelerators = Parts(problem), problem.cluster.accelerators
    start = _alone(problem, Budget(evaluations=evaluations))
    part = np.full(PARTS, int(np.bincount(start.device).argmax()))
    best, least = start, _ns(problem, start)
    for _ in range(evaluations - problem.num_devices):
        moved, at = part.copy(), generator.integers(PARTS)
        moved[at] = generator.choice(accelerators[accelerators != part[at]])
        (placement,) = of_parts.placed(moved[None])
        if (step_ns := _ns(problem, placement)) <= least:
            part, best, least = moved, placement, step_ns
    return best


def climbed(problem: Problem, evaluations: int, generator: np.random.Generator) -> Placement:
    """Hill climbing from the fastest device alone."""
    budget = Budget(evaluations=evaluations)
    start = _alone(problem, budget)
    return hill_climb(problem, simulate, generator, start=start, budget=budget, schedule=SCHEDULE)


def lists(problem: Problem, evaluations: int, generator: np.random.Generator) -> Placement:
    """The fastest of so many random list schedules."""
    source = list_schedules(problem, generator)
    return fastest(problem, [source() for _ in range(evaluations)], simulate)


CONTROLS: Mapping[str, Control] = {
    "random over METIS's 32 parts": random_parts,
    "hill climbing over them": climbed_parts,
    "hill climbing": climbed,
    "random list schedules": lists,
}


class Parts:
    """The parts of a problem, whose placements are soft: a unit that may not stand on its part's device goes to its first allowed one."""

    def __init__(self, problem: Problem) -> None:
        self._units = units(problem.graph, "coarse")
        self._part = clustering(problem, self._units, PARTS)
        self._allowed = torch.from_numpy(allowed(problem, self._units))

    def placed(self, device: Int64[np.ndarray, "samples parts"]) -> tuple[Placement, ...]:
        """The placements with each part on its device."""
        of_unit = torch.from_numpy(device[:, self._part].astype(np.int64))
        return unit_placements(self._units, soft_placement(of_unit, self._allowed), SCHEDULE)


def _alone(problem: Problem, budget: Budget) -> Placement:
    return fastest(problem, on_each(problem, range(problem.num_devices), SCHEDULE), budget.metered(simulate))


def _ns(problem: Problem, placement: Placement) -> float:
    feasible = simulate(problem, [placement])[0].feasible_ns
    return float("inf") if feasible is None else feasible
