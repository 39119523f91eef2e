"""REINFORCE or PPO for the hierarchical policy, and the paper's encoder or the GNN for every policy: README.md explains.

    python -m experiments.algorithms_encoders.run [--seeds N]

As many samples in every row of a table. Resumable: finished cells are kept.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from experiments import cells, output, results, training
from experiments.cells import Cell, Job
from experiments.problems import heuristics_ns, problem_of
from gnnplace.bounds.bounds import lower_bound
from gnnplace.config import files
from gnnplace.config.run import RunConfig

HERE = Path(__file__).resolve().parent
GRAPH, CLUSTER = "transformer-xl-2", "k40-2"
ENCODERS = ("paper", "gnn")
FEWER, MORE = 1_000, 3_000  # evaluations
GREEDY = "--training.greedy_every=1000000"  # no greedy placement before the last update: all evaluations are of samples
QUARTER = "--training.optimizer.lr=0.0015"  # of the tuned rate: four epochs make four steps of an update


class Variant(NamedTuple):
    """A policy, tuned, with what is changed in its settings; `steps` of an episode are evaluated."""

    policy: str
    overrides: tuple[str, ...] = ()
    steps: int = 1

    def config(self, encoder: str, evaluations: int, seed: int = 0) -> RunConfig:
        """The run that evaluates this many samples, rounded up to a whole update; it imitates no heuristic."""
        words = (f"--seed={seed}", "--training.warm_start.updates=0", GREEDY, *self.overrides)
        chosen = training.config_of(self.policy, "tuned", words, encoder)
        updates = -(-evaluations // (chosen.training.samples * self.steps))
        return replace(chosen, training=replace(chosen.training, updates=updates))


PLANNER = "hierarchical"  # with REINFORCE, a row of both tables
ALGORITHMS = {
    PLANNER: Variant("hierarchical"),
    "ppo, ratio of a decision": Variant("hierarchical", ("--algorithm.kind=ppo",)),
    "ppo, ratio of a sample": Variant("hierarchical", ("--algorithm.kind=ppo", "--algorithm.ratio=sample")),
    "ppo, ratio of a decision, rate / 4": Variant("hierarchical", ("--algorithm.kind=ppo", QUARTER)),
    "ppo, ratio of a sample, rate / 4": Variant("hierarchical", ("--algorithm.kind=ppo", "--algorithm.ratio=sample", QUARTER)),
}
POLICIES = {
    PLANNER: ALGORITHMS[PLANNER],
    "unit-placer": Variant("unit-placer"),
    "colocrl": Variant("colocrl"),
    "hsdag": Variant("hsdag", steps=4),
    "go": Variant("go"),
}
COLUMNS = {"sample_ns": "best sample, ms", "greedy_ns": "greedy at the end, ms", "seconds": "CPU seconds"}


def train(variant: Variant, encoder: str, evaluations: int, seed: int) -> Cell:
    """What one training run finds by its own samples, its greedy placement at the end, and how long it took."""
    problem, began = problem_of(GRAPH, CLUSTER), process_time()
    learner, curve = training.train(variant.config(encoder, evaluations, seed), [problem], [None])
    sampled = [time for time in curve.of("/best_sample_ns") if time is not None]
    return training.outcome(learner) | {"sample_ns": min(sampled, default=None), "seconds": process_time() - began}


def controls() -> Cell:
    """Every heuristic, and the bound."""
    problem = problem_of(GRAPH, CLUSTER)
    return {"heuristics": heuristics_ns(problem), "bound_ns": int(lower_bound(problem))}


def jobs(seeds: int) -> dict[str, Job]:
    """Every cell, by seed first, so that an unfinished run has whole tables."""
    made: dict[str, Job] = {"controls": (controls, ())}
    for seed in range(seeds):
        for encoder in ENCODERS:
            rows = [(name, variant, FEWER) for name, variant in (POLICIES | ALGORITHMS).items()]
            rows += [(name, variant, MORE) for name, variant in ALGORITHMS.items()]
            made |= {f"{name}/{encoder}/{number}/{seed}": (train, (variant, encoder, number, seed)) for name, variant, number in rows}
    return made


def settings() -> dict[str, Any]:
    """Whole configurations, so that cells of two settings never mix."""
    return {
        f"{name}/{encoder}": files.to_document(variant.config(encoder, FEWER))
        for name, variant in (POLICIES | ALGORITHMS).items()
        for encoder in ENCODERS
    }


def table(found: dict[str, Cell]) -> str:
    """The heuristics, the algorithms of the hierarchical policy, and the encoders of every policy."""
    best = min((time, name) for name, time in found["controls"]["heuristics"].items() if time is not None)
    text = f"Best heuristic: {best[0] / 1e6:.1f} ms ({best[1]}); bound {found['controls']['bound_ns'] / 1e6:.1f} ms.\n\n"
    for number in (FEWER, MORE):
        text += f"Algorithms of the hierarchical policy, {number:,} evaluations:\n\n" + _rows(found, ALGORITHMS, number) + "\n"
    return text + f"Encoders, {FEWER:,} evaluations:\n\n" + _rows(found, POLICIES, FEWER)


def _rows(found: dict[str, Cell], variants: dict[str, Variant], number: int) -> str:
    rows = [
        ["reinforce" if name == PLANNER and variants is ALGORITHMS else name, encoder, *_columns(found, f"{name}/{encoder}/{number}/")]
        for name in variants
        for encoder in ENCODERS
    ]
    return results.markdown_table(["", "encoder", *COLUMNS.values()], rows)


def _columns(found: dict[str, Cell], prefix: str) -> list[str]:
    """Medians over the seeds, and the range of times."""
    chosen = [cell for name, cell in sorted(found.items()) if name.startswith(prefix)]
    times = [_spread([cell[key] for cell in chosen]) for key in ("sample_ns", "greedy_ns")]
    return [*times, f"{statistics.median(cell['seconds'] for cell in chosen):.0f}"]


def _spread(times: list[int | None]) -> str:
    known = [time / 1e6 for time in times if time is not None]
    if len(known) < len(times):
        return f"infeasible in {len(times) - len(known)} of {len(times)}"
    return f"{statistics.median(known):.1f} [{min(known):.1f} - {max(known):.1f}]"


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of cells and table")
    arguments = parser.parse_args()
    path = arguments.results / "results.json"
    text = table(cells.compute(path, jobs(arguments.seeds), settings()))
    output.show(text, {"table": text}, arguments, path.with_suffix(".md"))


if __name__ == "__main__":
    main()
