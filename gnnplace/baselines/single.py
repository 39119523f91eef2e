"""Everything on one device, except ops that are not allowed there: the best CPU, accelerator or device of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.legal import legalised, processors
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import FEASIBLE, Evaluator, Score, score
from gnnplace.units.units import expand, units


def fastest(problem: Problem, placements: Sequence[Placement], evaluate: Evaluator) -> Placement:
    """The placement with the best score; the first on a tie. Raises ValueError for an empty sequence."""
    if not placements:
        raise ValueError("placements: at least one is needed")
    scores = [score(problem, result) for result in evaluate(problem, placements)]
    return placements[scores.index(min(scores))]


def fastest_that_fits(problem: Problem, proposals: Iterable[Sequence[Placement]], evaluate: Evaluator) -> Placement:
    """The placement with the best score. Further proposals are evaluated only as long as none is feasible.

    Raises ValueError if there are no placements.
    """
    best: tuple[Score, Placement] | None = None
    for placements in proposals:
        for placement, result in zip(placements, evaluate(problem, placements), strict=True):
            if best is None or score(problem, result) < best[0]:
                best = score(problem, result), placement
        if best is not None and best[0].feasibility == FEASIBLE:
            break
    if best is None:
        raise ValueError("placements: at least one is needed")
    return best[1]


def on_each(
    problem: Problem, devices: Sequence[int] | Int64[np.ndarray, " devices"], schedule: Schedule = "critical-path"
) -> list[Placement]:
    """Everything on each of `devices`. A colocation group that is not allowed there goes where it is fastest."""
    closure = units(problem.graph, "ops")
    wanted = np.asarray(devices)[:, None].repeat(closure.num_units, axis=1)
    return [Placement(device, schedule) for device in expand(closure, legalised(problem, closure, wanted))]


class OneDevice(NamedTuple):
    """The step on one device: the device, its time in ns, and whether the memory suffices."""

    device: int
    step_time_ns: int
    fits: bool


def best_device(problem: Problem, evaluate: Evaluator, schedule: Schedule = "critical-path") -> OneDevice | None:
    """The fastest device among those that hold the whole graph; if none does, the fastest of all.

    Ties go to the first. None if no step has a time, because of missing links.
    """
    results = evaluate(problem, on_each(problem, range(problem.num_devices), schedule))
    timed = [
        OneDevice(device, result.step_time_ns, result.infeasible is None)
        for device, result in enumerate(results)
        if result.step_time_ns is not None
    ]
    return min(timed, key=lambda each: (not each.fits, each.step_time_ns), default=None)


def single_cpu(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """Everything on the fastest CPU. Raises ValueError if the cluster has no CPU."""
    return fastest(problem, on_each(problem, processors(problem), schedule), evaluate)


def single_gpu(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """Everything on the fastest accelerator with enough memory; if none has, on the one with the least overflow."""
    return fastest(problem, on_each(problem, problem.cluster.accelerators, schedule), evaluate)
