"""Every learned planner beside random search, hill climbing and annealing, with equally many evaluations of the graph that it places.

    python -m experiments.planners.run [--budgets 1000 10000] [--seeds 3] [--graphs ...] [--clusters ...] [--columns ...] [--show] [--json]

A policy trains on the problem that it places, with its settings as they are, but for the number of updates, the schedule (that of the
critical path for all) and greedy placements (one, at the end, within the budget). Updates are as many whole ones as the budget allows. What
a column marked `taught` or `from heuristics` is given, evaluations of heuristics, is told apart. Resumable: finished cells are kept.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from experiments import cells, output, results, training
from experiments.cells import Cell, Job
from experiments.planners import picture, table
from experiments.planners.columns import ABLATIONS, FUSED, LEARNED, MAIN, SCHEDULE
from experiments.planners.watched import Watched
from experiments.problems import heuristics_ns, problem_of
from gnnplace.baselines.annealing import annealing, hill_climb
from gnnplace.baselines.legal import on_accelerators
from gnnplace.baselines.random_units import BATCH, draw
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest, on_each
from gnnplace.bounds.bounds import lower_bound
from gnnplace.fused import fused
from gnnplace.fusion.defaults import default
from gnnplace.placement import Placement
from gnnplace.portfolio import planners, searches
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.evaluations import of_an_episode
from gnnplace.units.units import allowed, expand, units

HERE = Path(__file__).resolve().parent
PATH = HERE / "results" / "planners.json"
CLUSTERS = ("k40-2", "mixed-4")
GRAPHS = (  # smallest first
    "transformer-xl-2", "resnet-50", "bert-base", "inception-v3-b1", "inception-v3-b32", "rnnlm-2", "nmt-2", "nasnet-mobile",
)  # fmt: skip
BUDGETS = (1000, 10_000)
ABLATED = (("transformer-xl-2", "k40-2"), ("resnet-50", "k40-2"))  # with the first budget alone
SearchName = Literal["random", "hill-climb", "annealing", "annealing, from heuristics", "improver, of the corpus"]
FusedSearchName = Literal["hill-climb, fused by default"]


def heuristics(graph: str, cluster: str) -> Cell:
    """What draws nothing: every heuristic under the critical-path schedule, and the bound."""
    problem = problem_of(graph, cluster)
    return {"ops": problem.num_ops, "heuristics": heuristics_ns(problem), "bound_ns": int(lower_bound(problem))}


def search(graph: str, cluster: str, name: SearchName | FusedSearchName, evaluations: int, seed: int) -> Cell:
    """What needs no training on the graph. Climbs start from the fastest device alone, whose search is part of the budget."""
    problem, generator, budget = _ready(graph, cluster), np.random.default_rng(seed), Budget(evaluations=evaluations)
    if name in get_args(FusedSearchName):
        problem = fused(problem, default(problem)).problem
    given = Watched()
    start = planners.best_heuristic(problem, given) if name == "annealing, from heuristics" else None
    spent = _spent(given)
    watched = Watched()
    match name:
        case "random":
            _random(problem, watched, evaluations, generator)
        case "improver, of the corpus":
            searches.improved(problem, watched, searches.shipped(), seed, budget)
        case _:
            alone = on_each(problem, range(problem.num_devices)) if start is None else [start]
            budget.spent = 0 if start is not None else len(alone)
            start = start or fastest(problem, alone, watched)
            (hill_climb if name.startswith("hill-climb") else annealing)(problem, watched, generator, start=start, budget=budget)
    return watched.cell(evaluations) | {"given": spent}


def _random(problem: Problem, watched: Watched, evaluations: int, generator: np.random.Generator) -> None:
    """Coarse units on random accelerators."""
    made = units(problem.graph, "coarse")
    legal = on_accelerators(problem, allowed(problem, made))
    for start in range(0, evaluations, BATCH):
        drawn = draw(legal, min(BATCH, evaluations - start), generator)
        watched(problem, [Placement(device, "critical-path") for device in expand(made, drawn)])


def policy(graph: str, cluster: str, column: str, evaluations: int, seed: int) -> Cell:
    """One training run of as many whole updates as leave room for the greedy placement at its end; none where not even one does."""
    torch.set_num_threads(1)
    problem, learned = _ready(graph, cluster), LEARNED[column]
    config = learned.config(seed)
    episode = of_an_episode(config, problem)
    each = config.training.samples * episode
    updates = (evaluations - episode) // each
    spent: Cell = {"updates": updates, "evaluations_an_update": each, "left": evaluations - episode - updates * each}
    if not updates:
        return spent
    given = Watched()
    teacher = planners.best_heuristic(problem, given) if learned.taught else None
    spent["given"] = _spent(given)
    watched = Watched()
    training.train(learned.config(seed, updates), [problem], [teacher], evaluate=watched)
    return watched.cell(evaluations) | spent | {"greedy_ns": watched.times[-1]}


def _ready(graph: str, cluster: str) -> Problem:
    """A problem, and the simulator as it is after its first call, which loads what is compiled."""
    problem = problem_of(graph, cluster)
    simulate(problem, on_each(problem, [0]))
    return problem


def _spent(given: Watched) -> Cell:
    return {"evaluations": len(given.times), "seconds": given.passed if given.times else 0.0}


def jobs(budgets: tuple[int, ...], seeds: int) -> dict[str, Job]:
    """Everything to be computed, by the name of its cell: small budgets, first seeds, small graphs first."""
    made: dict[str, Job] = {f"{graph}/{cluster}/heuristics": (heuristics, (graph, cluster)) for graph, cluster in product(GRAPHS, CLUSTERS)}
    for budget, seed in product(budgets, range(seeds)):
        for graph, cluster in product(GRAPHS, CLUSTERS):
            made |= _of(search, graph, cluster, get_args(SearchName), budget, seed) | _of(policy, graph, cluster, MAIN, budget, seed)
        for (graph, cluster), (title, study) in product(ABLATED if budget == BUDGETS[0] else (), ABLATIONS.items()):
            made |= _of(policy, graph, cluster, study, budget, seed) | _of(search, graph, cluster, FUSED.get(title, ()), budget, seed)
    return made


def _of(function: Any, graph: str, cluster: str, columns: Any, budget: int, seed: int) -> dict[str, Job]:
    return {f"{graph}/{cluster}/{column}/{budget}/{seed}": (function, (graph, cluster, column, budget, seed)) for column in columns}


def asked(chosen: argparse.Namespace) -> dict[str, Job]:
    """The jobs that the command line leaves."""

    def wanted(graph: str, cluster: str, column: str, *of: str) -> bool:
        return graph in chosen.graphs and cluster in chosen.clusters and (not chosen.columns or column in chosen.columns)

    return {name: job for name, job in jobs(tuple(chosen.budgets), chosen.seeds).items() if wanted(*name.split("/"))}


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--budgets", nargs="*", type=int, default=BUDGETS, help="evaluations")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--graphs", nargs="*", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--clusters", nargs="*", default=CLUSTERS, choices=CLUSTERS)
    parser.add_argument("--columns", nargs="*", help=f"heuristics, {', '.join((*get_args(SearchName), *LEARNED))}")
    parser.add_argument("--show", action="store_true", help="only tables and pictures of the cells that are there")
    chosen = parser.parse_args()
    found = results.load(PATH)["cells"] if chosen.show else cells.compute(PATH, asked(chosen), {"schedule": SCHEDULE})
    problems = list(product(GRAPHS, CLUSTERS))
    names = (*get_args(SearchName), *MAIN)
    made = [table.budget(found, problems, names, budget) for budget in BUDGETS]
    made += [table.ablation(found, title, [*study, *FUSED.get(title, ())], ABLATED, BUDGETS[0]) for title, study in ABLATIONS.items()]
    for graph in GRAPHS:
        picture.draw(found, graph, CLUSTERS, names, HERE / "results" / f"{graph}.png")
    output.show("\n".join(each for each in made if each), {"cells": len(found)}, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
