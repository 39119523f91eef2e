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

from gnnplace.baselines.fastest import Standing, standing
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.random_keys import Code, Plan, code, decoded, encoded, placements
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.schedules.priorities import priorities

POPULATION = 20
ELITE, MUTANTS, FROM_ELITE = 4, 4, 0.7  # .2, .2 and .7 of them: they recommend .10 to .25, .10 to .30 and .5 to .8
PATIENCE = 1  # generations without a better one until the population is drawn anew


class Member(NamedTuple):
    """A chromosome, what it decodes to, and how that stands."""

    keys: Float[np.ndarray, "2 genes"]
    placement: Placement
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
    own = Placement(start.device, schedule, priorities(problem, start) if schedule == "given" else None)
    (result,) = evaluate(problem, [own])
    budget.spent += 1
    best = Member(np.zeros((2, genes.num_genes)), own, standing(problem, result))
    if not genes.num_genes or (problem.num_devices == 1 and schedule != "given"):
        return own
    home = Plan(_by_unit(genes, start), np.zeros(genes.closure.num_units))
    drawn = [best.keys, *(encoded(genes, home, _by_unit(genes, other)) for other in others)]
    drawn += _mutants(genes, POPULATION - len(drawn), generator)
    population: list[Member] = []
    stale = 0
    while count := budget.allows(len(drawn)):
        found = _evaluated(problem, evaluate, genes, home, drawn[:count], schedule)
        budget.spent += count
        population = sorted([*population[:ELITE], *found], key=lambda member: member.standing)
        stale = 0 if population[0].standing < best.standing else stale + 1
        best = population[0] if stale == 0 else best
        if stale < PATIENCE:
            drawn = _next(genes, population, generator)
        else:
            home, stale = decoded(genes, home, population[0].keys), 0
            population = [population[0]._replace(keys=np.zeros_like(best.keys))]
            drawn = _mutants(genes, POPULATION - 1, generator)
    return best.placement


def _evaluated(
    problem: Problem, evaluate: Evaluator, genes: Code, home: Plan, drawn: Sequence[Float[np.ndarray, "2 genes"]], schedule: Schedule
) -> list[Member]:
    made = placements(problem, genes, [decoded(genes, home, keys) for keys in drawn], schedule)
    results = evaluate(problem, made)
    return [Member(keys, each, standing(problem, result)) for keys, each, result in zip(drawn, made, results, strict=True)]


def _by_unit(genes: Code, placement: Placement) -> Int32[np.ndarray, " units"]:
    device = np.zeros(genes.closure.num_units, dtype=np.int32)
    device[genes.closure.unit] = placement.device
    return device


def _mutants(genes: Code, count: int, generator: np.random.Generator) -> list[Float[np.ndarray, "2 genes"]]:
    return [generator.random((2, genes.num_genes)) for _ in range(count)]


def _next(genes: Code, population: Sequence[Member], generator: np.random.Generator) -> list[Float[np.ndarray, "2 genes"]]:
    """Mutants, and children of the elite with the rest, of a population in its order."""
    drawn = _mutants(genes, MUTANTS, generator)
    for _ in range(POPULATION - ELITE - MUTANTS):
        elite = population[int(generator.integers(min(ELITE, len(population))))]
        other = population[int(generator.integers(min(ELITE, len(population) - 1), len(population)))]
        drawn.append(np.where(generator.random(elite.keys.shape) < FROM_ELITE, elite.keys, other.keys))
    return drawn
