"""First transfer: train one policy on five graphs and several clusters, place families and clusters that it never saw.

Each fold leaves out a family with all its siblings. Each held-out problem compares the greedy placement of the trained
policy with the same policy untrained, with one trained without message passing, with the best of 64 random unit
placements and with the best heuristic. Settings were chosen on the held-out graphs of `Fold.seen`; those of `Fold.blind`
nobody had placed before the settings were frozen. Resumable: finished cells are kept.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from experiments import cells, output, results, training
from experiments.cells import Cell, Job
from experiments.first_transfer import plot
from experiments.problems import heuristics_ns, problem_of, time_ns
from gnnplace.baselines.random_units import random_units
from gnnplace.bounds.bounds import lower_bound
from gnnplace.placement import Placement
from gnnplace.policies import registry
from gnnplace.policies.protocol import Policy
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.learner import Learner
from gnnplace.training.update.rollout import best_of, greedy

HERE = Path(__file__).resolve().parent


class Fold(NamedTuple):
    """A family that is held out with all its siblings, and the five graphs that are trained on."""

    seen: tuple[str, ...]
    blind: tuple[str, ...]
    training: tuple[str, ...]


FOLDS = {
    "recurrent": Fold(
        ("nmt-2", "rnnlm-2"), ("gru-lm", "deepspeech2", "gcn"), ("inception-v3-b32", "bert-base", "gpt2", "moe-8e", "two-tower")
    ),
    "recommender": Fold(("two-tower",), ("dlrm", "deepfm", "gcn"), ("nmt-2", "rnnlm-2", "inception-v3-b32", "bert-base", "moe-8e")),
    "convolutional": Fold(
        ("inception-v3-b32", "inception-v3-b1"),
        ("resnet-50", "nasnet-mobile", "unet", "gcn"),
        ("nmt-2", "rnnlm-2", "bert-base", "moe-8e", "two-tower"),
    ),
}
TRAINED_ON = ("k40-2", "mixed-4", "p100-8")
UNSEEN = ("k40-4", "v100-8")
SETTINGS = (  # on many problems the gradient teaches; imitating single samples does not carry over to other graphs
    "--training.placements=32", "--algorithm.self_imitation=0", "--training.warm_start.updates=100",
    "--training.optimizer.lr=0.003", "--training.exploration.entropy_start=0.001",
)  # fmt: skip
VARIANTS = {"gnn": (), "no message passing": ("--policy.rounds=0",)}
RANDOM = 64


def held_out(fold: str) -> list[tuple[str, str]]:
    """Problems that nobody trained on: unseen graphs on a cluster that was seen, and on clusters that were not."""
    return [(graph, cluster) for graph in (*FOLDS[fold].seen, *FOLDS[fold].blind) for cluster in (TRAINED_ON[0], *UNSEEN)]


def transfer(fold: str, variant: str, seed: int, updates: int) -> Cell:
    """Train on the fold's graphs; place what was held out, before and after."""
    overrides = (*SETTINGS, *VARIANTS[variant], f"--seed={seed}", f"--training.updates={updates}")
    config = training.config_of("unit-placer", "tuned", overrides)
    problems = [problem_of(graph, cluster) for graph in FOLDS[fold].training for cluster in TRAINED_ON]
    unseen = {f"{graph}.{cluster}": problem_of(graph, cluster) for graph, cluster in held_out(fold)}
    untrained = registry.build(config.policy, config.policy.shape(problems), 1, seed)
    watch = HeldOut(unseen, (config.training.warm_start.updates, config.training.warm_start.updates + updates // 2))
    teachers = [training.teacher_of(problem, config) for problem in problems]
    learner, curve = training.train(config, problems, teachers, watch)
    sampler = best_of(learner.policy, RANDOM, simulate, torch.Generator().manual_seed(seed))
    return {
        "untrained": {label: _greedy(untrained, problem) for label, problem in unseen.items()},
        "on the way": watch.greedy_ns,
        "trained": {
            label: {"greedy_ns": _greedy(learner.policy, problem), "best_of_64_ns": time_ns(problem, sampler(problem))}
            for label, problem in unseen.items()
        },
        "curve": _to_teachers(curve, problems, teachers),
    }


class HeldOut(Callback):
    """Places the held-out problems greedily after some updates. What it sees changes nothing in training."""

    def __init__(self, problems: dict[str, Problem], updates: tuple[int, ...]) -> None:
        self.problems, self.updates = problems, updates
        self.greedy_ns: dict[str, dict[str, int | None]] = {}

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: object) -> None:
        assert isinstance(pl_module, Learner)
        if (done := pl_module.updates_done) in self.updates:
            self.greedy_ns[str(done)] = {label: _greedy(pl_module.policy, problem) for label, problem in self.problems.items()}


def _to_teachers(curve: training.Curve, problems: list[Problem], teachers: Sequence[Placement | None]) -> list[float | None]:
    """The mean of each update's samples over the teacher's time: 1 is as fast as the best heuristic."""
    ratio: list[float | None] = [None] * len(curve.updates)
    for problem, teacher in zip(problems, teachers, strict=True):
        assert teacher is not None
        fastest = time_ns(problem, teacher) or 1
        for update, mean in enumerate(curve.of(f"{problem.graph.name}.{problem.cluster.name}/mean_ns")):
            if mean is not None:
                ratio[update] = round(mean / fastest, 4)
    return ratio


def others(graph: str, cluster: str) -> Cell:
    """Random placements of the same units on GPUs, the best single GPU, the best heuristic and the bound."""
    problem = problem_of(graph, cluster)
    times = heuristics_ns(problem)
    feasible = {name: time for name, time in times.items() if time is not None}
    best = min(feasible, key=lambda name: feasible[name])
    random = [time_ns(problem, random_units(problem, simulate, np.random.default_rng(seed), evaluations=RANDOM)) for seed in range(3)]
    return {
        "random_ns": random, "gpu_ns": times["gpu"],
        "heuristic": best, "heuristic_ns": feasible[best], "bound_ns": int(lower_bound(problem)),
    }  # fmt: skip


def _greedy(policy: Policy, problem: Problem) -> int | None:
    return time_ns(problem, greedy(policy)(problem))


def run(arguments: argparse.Namespace) -> dict[str, Cell]:
    """Every cell, by name."""
    jobs: dict[str, Job] = {f"others/{g}.{c}": (others, (g, c)) for fold in FOLDS for g, c in held_out(fold)}
    for seed in range(arguments.seeds):
        jobs |= {f"{fold}/{variant}/{seed}": (transfer, (fold, variant, seed, arguments.updates)) for fold in FOLDS for variant in VARIANTS}
    folds = {name: list(fold.training) for name, fold in FOLDS.items()}
    settings = {"updates": arguments.updates, "overrides": list(SETTINGS), "clusters": list(TRAINED_ON), "training": folds}
    return cells.compute(HERE / "results" / "first_transfer.json", jobs, settings)


HEADER = [
    "trained without", "held out", "cluster", "random, best of 64", "1 GPU", "untrained, greedy", "imitation alone, greedy",
    "no message passing, greedy", "trained, greedy", "trained, best of 64", "best heuristic", "greedy / heuristic", "bound",
]  # fmt: skip


def rows(found: dict[str, Cell], *, blind: bool) -> list[list[str]]:
    """One row a held-out problem: milliseconds, medians over seeds."""
    return [
        _row(found, fold, graph, cluster)
        for fold in FOLDS
        for graph, cluster in held_out(fold)
        if graph in (FOLDS[fold].blind if blind else FOLDS[fold].seen)
    ]


def _row(found: dict[str, Cell], fold: str, graph: str, cluster: str) -> list[str]:
    label, other = f"{graph}.{cluster}", found[f"others/{graph}.{cluster}"]
    full, without = ([cell for name, cell in sorted(found.items()) if name.startswith(f"{fold}/{variant}/")] for variant in VARIANTS)
    greedy_ns, random_ns = _median([cell["trained"][label]["greedy_ns"] for cell in full]), _median(other["random_ns"])
    columns = [
        random_ns,
        other["gpu_ns"],
        _median([cell["untrained"][label] for cell in full]),
        _median([min(cell["on the way"].items(), key=lambda item: int(item[0]))[1][label] for cell in full]),
        _median([cell["trained"][label]["greedy_ns"] for cell in without]),
        greedy_ns,
        _median([cell["trained"][label]["best_of_64_ns"] for cell in full]),
    ]
    times = [_ms(time) for time in columns]
    times[5] = times[5] if greedy_ns is None or (random_ns is not None and greedy_ns >= random_ns) else f"**{times[5]}**"
    worth = "-" if greedy_ns is None else f"{greedy_ns / other['heuristic_ns']:.2f}"
    seen = cluster if cluster in TRAINED_ON else f"{cluster} (unseen)"
    return [fold, graph, seen, *times, f"{_ms(other['heuristic_ns'])} ({other['heuristic']})", worth, _ms(other["bound_ns"])]


def _median(times: list[int | None]) -> int | None:
    """The median, where an infeasible placement is slower than any; None where it is the median."""
    middle = statistics.median_high([float("inf") if time is None else time for time in times])
    return None if middle == float("inf") else int(middle)


def _ms(time_ns: int | None) -> str:
    return "infeasible" if time_ns is None else f"{time_ns / 1e6:.2f}"


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--updates", type=int, default=500, help="updates by policy gradient, after 100 of imitation")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    found = run(arguments)
    tables = {name: rows(found, blind=blind) for name, blind in (("blind", True), ("seen while settings were chosen", False))}
    text = "\n".join(f"**{name}** (bold: faster than random)\n\n{results.markdown_table(HEADER, made)}" for name, made in tables.items())
    plot.draw(found, {fold: held_out(fold) for fold in FOLDS}, HERE / "results" / "first_transfer.png")
    output.show(text, {"header": HEADER, "rows": tables}, arguments, HERE / "results" / "first_transfer.md")


if __name__ == "__main__":
    main()
