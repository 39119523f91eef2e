"""What each switch of `--encoder gnn` is worth: one is turned off at a time, everything else as in configs/gnn.yaml.

Each cell is the best of the policy's own samples and greedy decodings, and the greedy placement at the end. Resumable.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from experiments import cells, training
from experiments.cells import Cell, Job
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.report import results

HERE = Path(__file__).resolve().parent
PROBLEMS = (("inception-v3-b32", "k40-2"), ("rnnlm-2", "k40-2"))
VARIANTS = {
    "configs/gnn.yaml": (),
    "no warm start": ("--training.warm_start.updates=0",),
    "no self-imitation": ("--training.self_imitation=0",),
    "no message passing": ("--policy.message_passing=false",),
    "no state of devices": ("--policy.state_features=false",),
    "no entropy": ("--training.exploration.entropy_start=0",),
    "moving average": ("--training.advantage.kind=moving-average", "--training.advantage.initial=0"),
    "reward -sqrt(t)": ("--training.reward.kind=sqrt",),
    "16 samples": ("--training.placements=16",),
}


def train(graph: str, cluster: str, variant: str, seed: int, updates: int) -> Cell:
    """One training run of one variant."""
    problem = roofline.problem(manifest.graph(graph), clusters.cluster(cluster))
    config = training.config_of("gnn", (f"--seed={seed}", f"--training.updates={updates}", *VARIANTS[variant]))
    learner, _ = training.train(config, [problem], [training.teacher_of(problem, config)])
    return training.outcome(learner)


HEADER = ["variant", *(f"{graph}, {cluster}: best, greedy (ms)" for graph, cluster in PROBLEMS)]


def rows(found: dict[str, Cell]) -> list[list[str]]:
    """One row a variant: medians over seeds."""
    return [[variant, *(_times(found, f"{graph}.{cluster}/{variant}/") for graph, cluster in PROBLEMS)] for variant in VARIANTS]


def _times(found: dict[str, Cell], prefix: str) -> str:
    chosen = [cell for name, cell in sorted(found.items()) if name.startswith(prefix)]
    return ", ".join(_median([cell[key] for cell in chosen]) for key in ("best_ns", "greedy_ns"))


def _median(times: list[int | None]) -> str:
    known = [time for time in times if time is not None]
    return f"{statistics.median(known) / 1e6:.1f}" if len(known) == len(times) else "infeasible"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    arguments = parser.parse_args()
    jobs: dict[str, Job] = {
        f"{graph}.{cluster}/{variant}/{seed}": (train, (graph, cluster, variant, seed, arguments.updates))
        for seed in range(arguments.seeds)
        for graph, cluster in PROBLEMS
        for variant in VARIANTS
    }
    found = cells.compute(HERE / "results" / "ablation.json", jobs, {"updates": arguments.updates})
    table = results.markdown_table(HEADER, rows(found))
    (HERE / "results" / "ablation.md").write_text(table)
    print(table)
    if arguments.json:
        print(json.dumps({"header": HEADER, "rows": rows(found)}))


if __name__ == "__main__":
    main()
