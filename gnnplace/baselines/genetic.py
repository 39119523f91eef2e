"""A biased random-key genetic algorithm over placement and priorities (Goncalves and Resende, 2011).

Each generation keeps the elite, draws a few mutants at random, and lets the others inherit each key from one of the elite (mostly) or
from one of the rest. Keys say what becomes of a placement (`random_keys`), at first the start. When no better one was found for a few
generations, the best becomes the placement that keys change, and a population is drawn anew around it: the decoder would otherwise lose
with every child what took many generations to add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int32

from gnnplace.baselines.budget import Budget
from gnnplace.baselines.fastest import Standing, standing
from gnnplace.baselines.random_keys import Code, Plan, code, decoded, encoded, placements
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.priorities import priorities

POPULATION = 20
ELITE, MUTANTS, FROM_ELITE = 4, 4, 0.7  # .2, .2 and .7 of them: they recommend .10 to .25, .10 to .30 and .5 to .8
PATIENCE = 1  # generations without a better one until the population is drawn anew


class Member(NamedTuple):
    """A chromosome, and how what it decodes to stands."""

    keys: Float[np.ndarray, "2 genes"]
    standing: Standing


def genetic(
    problem: Problem,
    evaluate: Evaluator,
    generator: np.random.Generator,
    *,
    start: Placement,
    budget: Budget,
    schedule: Schedule = "critical-path",
    others: Sequence[Placement] = (),
) -> Placement:
    """The best placement that was met, never worse than `start`, a legal one, under the schedule; `others` join the first population.

    With the schedule `given` priorities evolve, too, around the ranks of the schedule critical-path, and the start keeps its own order.
    Raises ValueError where a unit may stand nowhere.
    """
    genes = code(problem)
    best = Placement(start.device, schedule, priorities(problem, start) if schedule == "given" else None)
    (result,) = evaluate(problem, [best])
    budget.spent += 1
    least = standing(problem, result)
    if not genes.num_genes or (problem.num_devices == 1 and schedule != "given"):
        return best
    home = Plan(_by_unit(genes, start), np.zeros(genes.closure.num_units))
    drawn = [np.zeros((2, genes.num_genes)), *(encoded(genes, home, _by_unit(genes, other)) for other in others)]
    drawn += [generator.random((2, genes.num_genes)) for _ in range(POPULATION - len(drawn))]
    population: list[Member] = []
    stale = 0
    while count := budget.allows(len(drawn)):
        plans = [decoded(genes, home, keys) for keys in drawn[:count]]
        made = placements(problem, genes, plans, schedule)
        found = [standing(problem, result) for result in evaluate(problem, made)]
        budget.spent += count
        population += [Member(keys, stands) for keys, stands in zip(drawn, found, strict=False)]
        population.sort(key=lambda member: member.standing)
        stale += 1
        if min(found) < least:
            first = found.index(min(found))
            least, best, stale = found[first], made[first], 0
        if stale == PATIENCE:
            home, stale = decoded(genes, home, population[0].keys), 0
            population = [Member(np.zeros_like(population[0].keys), population[0].standing)]
            drawn = [generator.random((2, genes.num_genes)) for _ in range(POPULATION - 1)]
        else:
            drawn = _next(population, generator)
            population = population[:ELITE]
    return best


def _by_unit(genes: Code, placement: Placement) -> Int32[np.ndarray, " units"]:
    device = np.zeros(genes.closure.num_units, dtype=np.int32)
    device[genes.closure.unit] = placement.device
    return device


def _next(population: Sequence[Member], generator: np.random.Generator) -> list[Float[np.ndarray, "2 genes"]]:
    """Mutants, and children of the elite with the rest, of a population in its order."""
    shape = population[0].keys.shape
    drawn = [generator.random(shape) for _ in range(MUTANTS)]
    for _ in range(POPULATION - ELITE - MUTANTS):
        elite = population[int(generator.integers(min(ELITE, len(population))))]
        other = population[int(generator.integers(min(ELITE, len(population) - 1), len(population)))]
        drawn.append(np.where(generator.random(shape) < FROM_ELITE, elite.keys, other.keys))
    return drawn
