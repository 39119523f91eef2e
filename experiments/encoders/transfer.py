"""One policy for many graphs: trained on the corpus's training split, it places the other splits as it is.

The encoder's two switches make four policies: what ops are embedded from, and how their neighbours enter. All else is equal: devices are
observed, kinds are those that all frameworks share, so that one set of weights places any graph on any cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from experiments import training
from experiments.cells import Cell, Job
from experiments.problems import heuristics_ns, problem_of, time_ns
from gnnplace.baselines.random_units import random_units
from gnnplace.bounds.bounds import lower_bound
from gnnplace.config.run import RunConfig, SelectionConfig
from gnnplace.policies.protocol import Policy
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.learner import Learner
from gnnplace.training.run.selection import selected
from gnnplace.training.update.lesson import labels, reference_ns
from gnnplace.training.update.metrics import geometric_mean
from gnnplace.training.update.rollout import decode, fastest, sampled

TRAINED_ON, UNSEEN = ("k40-2", "k40-4", "mixed-4"), "v100-8"
HELD_OUT = SelectionConfig(splits=("validation", "test"), clusters=("k40-2", "k40-4", UNSEEN), most_ops=7000)
FEATURES, NEIGHBOURS = ("paper", "costs"), ("indices", "messages")
VARIANTS = tuple(f"{features}, {neighbours}" for features, neighbours in product(FEATURES, NEIGHBOURS))
SETTINGS = (  # one policy of all problems; graphs of validation and test are never trained on
    "--problems=[]", "--corpus.splits=[train]", f"--corpus.clusters=[{', '.join(TRAINED_ON)}]", "--corpus.most_ops=6500",
    "--policy.devices=observed", "--policy.kinds=canonical", "--training.warm_start.updates=0", "--training.greedy_every=1000000",
    "--algorithm.decisions=mean", "--training.optimizer.lr=0.003", "--training.grouping.updates=2000", "--training.updates=1000",
)  # fmt: skip
RANDOM_SEEDS = 5
BLOCK = 10  # updates of a point of a curve: each is of another problem


class Plan(NamedTuple):
    """How long policies are trained, and how many samples of each problem are drawn afterwards."""

    overrides: tuple[str, ...]
    samples: int


class Before(Callback):
    """Places what is held out by the policy's first weights, under the ranges of features that training has."""

    def __init__(self, problems: Sequence[Problem], samples: int, seed: int) -> None:
        self._what = problems, samples, seed
        self.found: Cell = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        self.found = placed(pl_module.policy, *self._what)


def config(variant: str, overrides: Sequence[str]) -> RunConfig:
    """The tuned settings with these switches of the encoder, on the training split."""
    features, neighbours = variant.split(", ")
    switches = (f"--policy.features={features}", f"--policy.neighbours={neighbours}")
    return training.config_of("hierarchical", "tuned", (*SETTINGS, *switches, *overrides))


def transfer(variant: str, seed: int, plan: Plan) -> Cell:
    """Trains one policy; places what is held out before and after."""
    chosen, began = config(variant, (f"--seed={seed}", *plan.overrides)), monotonic()
    problems, held_out = selected(chosen.corpus, chosen.seed), selected(HELD_OUT, 0)
    before = Before(held_out, plan.samples, seed)
    learner, curve = training.train(chosen, problems, [None] * len(problems), before)
    return {
        "problems": len(problems), "untrained": before.found, "trained": placed(learner.policy, held_out, plan.samples, seed),
        "curve": blocks([update.get("mean_over_one_device") for update in curve.updates]), "seconds": monotonic() - began,
    }  # fmt: skip


def placed(policy: Policy[Any], problems: Sequence[Problem], samples: int, seed: int) -> Cell:
    """The step times of the greedy placement and of the best of so many samples, None where it does not fit."""
    found = {}
    for problem, label in zip(problems, labels(problems), strict=True):
        greedy = decode(policy, problem, simulate)[1]
        drawn = sampled(policy, problem, samples, simulate, torch.Generator().manual_seed(seed))
        found[label] = {"greedy": greedy.feasible_ns, "best sample": fastest(drawn)[1].feasible_ns}
    return found


def blocks(ratios: Sequence[float | None]) -> list[float | None]:
    """The geometric mean of each block of updates, None where none of them has a ratio."""
    parts = [[ratio for ratio in ratios[start : start + BLOCK] if ratio is not None] for start in range(0, len(ratios), BLOCK)]
    return [geometric_mean(part) if part else None for part in parts]


def others(graph: str, cluster: str, samples: int) -> Cell:
    """The best single device and heuristic, the best of so many random placements of coarse units on accelerators, and the bound."""
    problem = problem_of(graph, cluster)
    feasible = {name: time for name, time in heuristics_ns(problem).items() if time is not None}
    best = min(feasible, key=lambda name: feasible[name])
    drawn = [random_units(problem, simulate, np.random.default_rng(seed), evaluations=samples) for seed in range(RANDOM_SEEDS)]
    return {
        "one_device_ns": reference_ns(problem, simulate), "heuristic": best, "heuristic_ns": feasible[best],
        "random_ns": [time_ns(problem, placement) for placement in drawn], "bound_ns": int(lower_bound(problem)),
    }  # fmt: skip


def jobs(seeds: int, plan: Plan) -> dict[str, Job]:
    """Every cell: what policies are compared with, then policies by seed first."""
    held_out = selected(HELD_OUT, 0)
    made: dict[str, Job] = {
        f"others/{label}": (others, (problem.graph.name, problem.cluster.name, plan.samples))
        for problem, label in zip(held_out, labels(held_out), strict=True)
    }
    return made | {f"{variant}/{seed}": (transfer, (variant, seed, plan)) for seed in range(seeds) for variant in VARIANTS}
