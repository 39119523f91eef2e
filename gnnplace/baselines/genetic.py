"""A biased random-key genetic algorithm over placement and priorities (Goncalves and Resende, 2011).

Each generation keeps the elite and draws a few mutants at random. The other members inherit each key from an elite
parent, mostly, or from another parent. Keys encode changes to one placement (`random_keys`), at first the start. After
`PATIENCE` generations without a better placement, the best one becomes the placement that keys change, and a new
population is drawn around it. Otherwise children would lose improvements that took many generations to accumulate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int32

from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.random_keys import Code, UnitPlan, code, decoded, encoded, placements
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, score
from gnnplace.schedules.priorities import priorities

POPULATION = 20
# shares of .2, .2 and .7; the paper recommends .10 to .25, .10 to .30 and .5 to .8
ELITE, MUTANTS, FROM_ELITE = 4, 4, 0.7
PATIENCE = 1  # generations without an improvement before a new population


class Member(NamedTuple):
    """A chromosome, the placement that it encodes, and its score."""

    keys: Float[np.ndarray, "2 genes"]
    placement: Placement
    score: Score


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
    """The best placement that the search evaluates, never worse than `start` under the schedule.

    `start` must respect `allowed`; `others` join the first population. Under the schedule `given` priorities evolve
    too, as offsets to the ranks of the schedule critical-path, and the start keeps its own order. Raises ValueError if
    a unit is allowed on no device.
    """
    genes, metered = code(problem), budget.metered(evaluate)
    origin = Placement(start.device, schedule, priorities(problem, start) if schedule == "given" else None)
    (result,) = metered(problem, [origin])
    best = Member(np.zeros((2, genes.num_genes)), origin, score(problem, result))
    if not genes.num_genes or (problem.num_devices == 1 and schedule != "given"):
        return origin
    home = UnitPlan(_by_unit(genes, start), np.zeros(genes.closure.num_units))
    drawn = [best.keys, *(encoded(genes, home, _by_unit(genes, other)) for other in others)]
    drawn += _mutants(genes, POPULATION - len(drawn), generator)
    population: list[Member] = []
    stale = 0
    while count := budget.allows(len(drawn)):
        offspring = _evaluated(problem, metered, genes, home, drawn[:count], schedule)
        population = sorted([*population[:ELITE], *offspring], key=lambda member: member.score)
        stale = 0 if population[0].score < best.score else stale + 1
        best = population[0] if stale == 0 else best
        if stale < PATIENCE:
            drawn = _next(genes, population, generator)
        else:
            home, stale = decoded(genes, home, population[0].keys), 0
            population = [population[0]._replace(keys=np.zeros_like(best.keys))]
            drawn = _mutants(genes, POPULATION - 1, generator)
    return best.placement


def _evaluated(
    problem: Problem,
    evaluate: Evaluator,
    genes: Code,
    home: UnitPlan,
    drawn: Sequence[Float[np.ndarray, "2 genes"]],
    schedule: Schedule,
) -> list[Member]:
    offspring = placements(problem, genes, [decoded(genes, home, keys) for keys in drawn], schedule)
    results = evaluate(problem, offspring)
    return [
        Member(keys, each, score(problem, result)) for keys, each, result in zip(drawn, offspring, results, strict=True)
    ]


def _by_unit(genes: Code, placement: Placement) -> Int32[np.ndarray, " units"]:
    device = np.zeros(genes.closure.num_units, dtype=np.int32)
    device[genes.closure.unit] = placement.device
    return device


def _mutants(genes: Code, count: int, generator: np.random.Generator) -> list[Float[np.ndarray, "2 genes"]]:
    return [generator.random((2, genes.num_genes)) for _ in range(count)]


def _next(
    genes: Code, population: Sequence[Member], generator: np.random.Generator
) -> list[Float[np.ndarray, "2 genes"]]:
    """The next generation: mutants, and children of elite and other members. `population` is sorted by score."""
    drawn = _mutants(genes, MUTANTS, generator)
    for _ in range(POPULATION - ELITE - MUTANTS):
        elite = population[int(generator.integers(min(ELITE, len(population))))]
        other = population[int(generator.integers(min(ELITE, len(population) - 1), len(population)))]
        drawn.append(np.where(generator.random(elite.keys.shape) < FROM_ELITE, elite.keys, other.keys))
    return drawn
