"""Simulated annealing over placements (Kirkpatrick, Gelatt and Vecchi, 1983); at temperature 0 it is hill climbing.

A few moves are evaluated together, and the best of them is accepted or not. A placement that was met before is not evaluated again, as far
as there are others. Temperatures are shares of the step time and fall geometrically with what is used of the budget. Where moves are drawn
follows the step of the placement at hand (`moves.guide`), which is looked at from time to time: that is an evaluation, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gnnplace.baselines.fastest import Standing, standing
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.moves import Devices, Guide, Moves, guide, moved, moves
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

TOGETHER = 4  # moves evaluated at once
LOOKS = 50  # evaluations between looks at the step of the placement at hand
REDRAWS = 20  # moves drawn for one that leads where nobody has been
HOT, COLD = 2e-3, 2e-5  # temperatures: a step longer by this share is accepted with a chance of 1 / e

Found = Callable[[Standing], object]  # told of whatever is better than all before


class _Here(NamedTuple):
    """The placement at hand, how it stands, and what its step, or that of a placement shortly before it, says of where to move."""

    device: Devices
    standing: Standing
    guide: Guide | None


def annealing(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
    hot: float = HOT,
    found: Found = lambda standing: None,
) -> Placement:
    """The best placement that was met, a legal one, never worse than a legal `start`. Raises ValueError where a unit may stand nowhere.

    `hot` is the first temperature; from 0 on nothing is accepted that is worse.
    """
    around = moves(problem)

    def look(device: Devices) -> _Here:
        budget.spent += 1
        (result,) = evaluate(problem, [around.placement(device, schedule)], timeline=True)
        return _Here(device, standing(problem, result), guide(problem, around, device, result))

    here = best = look(around.start(start))
    seen, looked, fresh = {_digest(here.device)}, budget.spent, True
    while around.grains and (count := budget.allows(TOGETHER)):
        if not fresh and budget.spent - looked >= LOOKS:
            here, looked, fresh = look(here.device), budget.spent, True
            continue
        drawn = [_new(around, here, seen, generator) for _ in range(count)]
        worst = _worst(here.standing, hot * (COLD / HOT) ** min(1.0, budget.used), generator)
        results = evaluate(problem, [around.placement(device, schedule) for device in drawn], limit_ns=worst.limit_ns)
        budget.spent += count
        stands, device = min(zip([standing(problem, result) for result in results], drawn, strict=True), key=lambda each: each[0])
        if stands <= worst:
            here, fresh = _Here(device, stands, here.guide), False
            if stands < best.standing:
                best = here
                found(stands)
    return around.placement(best.device, schedule)


def hill_climb(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
    found: Found = lambda standing: None,
) -> Placement:
    """Annealing that accepts nothing that is worse."""
    return annealing(problem, evaluate, generator, start=start, budget=budget, schedule=schedule, hot=0.0, found=found)


def _new(around: Moves, here: _Here, seen: set[bytes], generator: np.random.Generator) -> Devices:
    """A placement that was not met before; where many moves lead to none, the last of them."""
    for _ in range(REDRAWS):
        device = moved(around, here.device, here.guide, generator)
        if (digest := _digest(device)) not in seen:
            break
    seen.add(digest)
    return device


def _digest(device: Devices) -> bytes:
    return hashlib.blake2b(device.tobytes(), digest_size=16).digest()


def _worst(here: Standing, temperature: float, generator: np.random.Generator) -> Standing:
    """The worst standing that replaces another (Metropolis et al., 1953): as feasible, and with a chance of exp(-longer / temperature)."""
    longer = int(temperature * here.step_time_ns * generator.exponential())
    return here._replace(step_time_ns=here.step_time_ns + longer)
