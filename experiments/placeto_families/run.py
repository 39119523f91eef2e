"""Placeto trained on some members of a generated family, which places the others as it is: beside policies trained on them, and searches.

    python -m experiments.placeto_families.run [--seeds 3] [--families cifar10 ptb nmt mix] [--clusters k40-2] [--show] [--json]

A family has 24 members to train on and 8 that are only placed; `mix` is all three families together. Every planner but heuristics and what
is trained on the graph itself gets as many evaluations of a test member as 8 episodes of Placeto take. Resumable: finished cells are kept.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np

from experiments import cells, output, results, training
from experiments.cells import Cell, Job
from experiments.encoders import transfer
from experiments.placeto_families import picture, table
from experiments.placeto_families.members import SETS, TEST, TRAINING, names, problem_of
from experiments.placeto_families.settings import (
    EPISODES,
    EVALUATIONS,
    HIERARCHICAL,
    OWN_EVALUATIONS,
    OWN_UPDATES,
    PLACETO,
    UPDATES,
    PolicyName,
    config,
)
from experiments.problems import heuristics_ns, time_ns
from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.random_units import random_units
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest, on_each
from gnnplace.bounds.bounds import lower_bound
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.lesson import reference_ns

HERE = Path(__file__).resolve().parent
PATH = HERE / "results" / "placeto_families.json"
CLUSTERS = ("k40-2",)
SEEN_EACH = 4  # every fourth training member is placed as test members are


def trained(members: str, cluster: str, policy: PolicyName, seed: int) -> Cell:
    """One policy of a family's training members, and how it places the test members before and after its training."""
    families, chosen = SETS[members], config(policy, seed)
    known, unseen = ([problem_of(name, cluster) for name in names(families, indices)] for indices in (TRAINING, TEST))
    samples = EPISODES if policy == "placeto" else EVALUATIONS
    before = transfer.Before(unseen, samples, seed)
    learner, curve = training.train(chosen, known, [None] * len(known), before)
    return {
        "untrained": before.found, "trained": transfer.placed(learner.policy, unseen, samples, seed),
        "seen": transfer.placed(learner.policy, known[::SEEN_EACH], samples, seed),
        "curve": transfer.blocks([update.get("mean_over_one_device") for update in curve.updates]),
    }  # fmt: skip


def own(graph: str, cluster: str, seed: int) -> Cell:
    """Placeto trained on the graph that it places, from random weights, and hill climbing with as many evaluations."""
    problem, chosen = problem_of(graph, cluster), config("placeto", seed, OWN_UPDATES)
    learner, _ = training.train(chosen, [problem], [None])
    return training.outcome(learner) | {"hill_climb_ns": _climbed(problem, OWN_EVALUATIONS, seed)}


def searched(graph: str, cluster: str, seed: int) -> Cell:
    """Random placements of coarse units on accelerators, and hill climbing from the fastest device alone."""
    problem = problem_of(graph, cluster)
    drawn = random_units(problem, simulate, np.random.default_rng(seed), evaluations=EVALUATIONS)
    return {"random_ns": time_ns(problem, drawn), "hill_climb_ns": _climbed(problem, EVALUATIONS, seed)}


def _climbed(problem: Problem, evaluations: int, seed: int) -> int | None:
    alone, budget = on_each(problem, range(problem.num_devices)), Budget(evaluations=evaluations)
    budget.spent = len(alone)
    start = fastest(problem, alone, simulate)
    return time_ns(problem, hill_climb(problem, simulate, np.random.default_rng(seed), start=start, budget=budget))


def fixed(graph: str, cluster: str) -> Cell:
    """What draws nothing: the fastest device alone, every heuristic, the bound."""
    problem = problem_of(graph, cluster)
    return {
        "sha256": problem.graph.sha256, "ops": problem.num_ops, "one_device_ns": reference_ns(problem, simulate),
        "heuristics": heuristics_ns(problem), "bound_ns": int(lower_bound(problem)),
    }  # fmt: skip


def jobs(families: list[str], clusters: list[str], seeds: int) -> dict[str, Job]:
    """Every cell by its name: what needs no training, first seeds first. Placeto on the graph and the hierarchical policy have one seed."""
    made: dict[str, Job] = {}
    tested = list(dict.fromkeys(name for family in families for name in names(SETS[family], TEST)))
    for name, cluster in product(tested, clusters):
        made |= {f"{name}/{cluster}/fixed": (fixed, (name, cluster)), f"{name}/{cluster}/own/0": (own, (name, cluster, 0))}
    for seed, cluster in product(range(seeds), clusters):
        made |= {f"{name}/{cluster}/searched/{seed}": (searched, (name, cluster, seed)) for name in tested}
        policies: tuple[PolicyName, ...] = ("placeto", "hierarchical") if seed == 0 else ("placeto",)
        made |= {
            f"{family}/{cluster}/{policy}/{seed}": (trained, (family, cluster, policy, seed))
            for family, policy in product(families, policies)
        }
    return made


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--families", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--clusters", nargs="*", default=list(CLUSTERS))
    parser.add_argument("--show", action="store_true", help="only the tables and the picture of the cells that are there")
    chosen: argparse.Namespace = parser.parse_args()
    settings = {"placeto": list(PLACETO), "hierarchical": list(HIERARCHICAL), "updates": [UPDATES, OWN_UPDATES], "test": list(TEST)}
    asked = jobs(chosen.families, chosen.clusters, chosen.seeds)
    found = results.load(PATH)["cells"] if chosen.show else cells.compute(PATH, asked, settings)
    for cluster in chosen.clusters:
        picture.draw(found, chosen.families, cluster, HERE / "results" / f"{cluster}.png")
    text = "\n".join(table.table(found, chosen.families, cluster) for cluster in chosen.clusters)
    output.show(text, {"cells": len(found)}, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
