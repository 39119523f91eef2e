"""One policy a graph: the hierarchical policy as tuned, with either encoder, trained on the graph that it places, and its controls."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import numpy as np

from experiments import training
from experiments.cells import Cell, Job
from experiments.problems import heuristics_ns, problem_of, time_ns
from gnnplace.baselines.legal import on_accelerators
from gnnplace.baselines.random_units import BATCH, draw
from gnnplace.baselines.single import fastest
from gnnplace.bounds.bounds import lower_bound
from gnnplace.config.run import RunConfig
from gnnplace.placement import Placement
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.learner import Learner
from gnnplace.units.units import allowed, expand, units

GRAPHS, CLUSTER = ("nmt-2", "rnnlm-2", "inception-v3-b32"), "k40-2"
ENCODERS = ("paper", "gnn")
RANDOM = {"random": False, "random, GPUs alone": True}
KEPT = 10  # of the updates of a curve, every tenth


def config(encoder: str, overrides: Sequence[str]) -> RunConfig:
    """The tuned settings with this encoder; no placement of a heuristic is imitated."""
    return training.config_of("hierarchical", "tuned", ("--training.warm_start.updates=0", *overrides), encoder)


def learned(graph: str, encoder: str, seed: int, overrides: tuple[str, ...]) -> Cell:
    """What one training run finds by its own samples, and how it got there."""
    problem, chosen, began = problem_of(graph, CLUSTER), config(encoder, (f"--seed={seed}", *overrides)), monotonic()
    learner, curve = training.train(chosen, [problem], [None])
    sampled = [time for time in curve.of("/best_sample_ns") if time is not None]
    ops = [curve.of(f"/ops on {name}")[-1] or 0 for name in problem.cluster.device_names]
    found = training.outcome(learner)
    greedy = [time for time in (*curve.of("/greedy_ns"), found["greedy_ns"]) if time is not None]
    return found | {
        "best_sample_ns": min(sampled, default=None), "best_greedy_ns": min(greedy, default=None),
        "evaluations": evaluations(chosen), "seconds": monotonic() - began,
        "fullest": max(ops) / problem.num_ops, "curve": {name: curve.of(f"/{name}")[::KEPT] for name in ("mean_ns", "best_ns", "entropy")},
        "placement": _digits(learner) if seed == 0 else None,
    }  # fmt: skip


def evaluations(chosen: RunConfig) -> int:
    """How many samples a run has evaluated."""
    return chosen.training.samples * chosen.training.updates


def _digits(learner: Learner) -> str | None:
    """The best placement, a digit an op: a picture shows it."""
    best = learner.best.by_problem[0]
    return None if best is None else "".join(map(str, best.placement.device))


def controls(graph: str) -> Cell:
    """Every heuristic, and the bound."""
    problem = problem_of(graph, CLUSTER)
    return {"heuristics": heuristics_ns(problem), "bound_ns": int(lower_bound(problem))}


def random(graph: str, seed: int, number: int, policy: HierarchicalConfig, gpus_alone: bool) -> Cell:
    """The best of so many random placements of the policy's units, on all devices that the policy has or without the CPU."""
    problem = problem_of(graph, CLUSTER)
    return {"best_ns": time_ns(problem, _drawn(problem, policy, np.random.default_rng(seed), number, gpus_alone))}


def _drawn(problem: Problem, policy: HierarchicalConfig, generator: np.random.Generator, number: int, gpus_alone: bool) -> Placement:
    made = units(problem.graph, policy.units)
    legal = on_accelerators(problem, allowed(problem, made)) if gpus_alone else allowed(problem, made)
    best: list[Placement] = []
    for start in range(0, number, BATCH):
        drawn = expand(made, draw(legal, min(BATCH, number - start), generator))
        best = [fastest(problem, [*best, *(Placement(device, policy.schedule) for device in drawn)], simulate)]
    return best[0]


def jobs(seeds: int, overrides: tuple[str, ...]) -> dict[str, Job]:
    """Every cell, by seed first, so that an unfinished run has whole tables."""
    made: dict[str, Job] = {f"{graph}/controls": (controls, (graph,)) for graph in GRAPHS}
    chosen = config(ENCODERS[0], overrides)
    for seed in range(seeds):
        for graph in GRAPHS:
            made |= {f"{graph}/{encoder}/{seed}": (learned, (graph, encoder, seed, overrides)) for encoder in ENCODERS}
            for name, gpus_alone in RANDOM.items():
                made[f"{graph}/{name}/{seed}"] = (random, (graph, seed, evaluations(chosen), chosen.policy, gpus_alone))
    return made
