"""What each switch is worth: one is changed at a time, everything else as in configs/gnn.yaml or configs/paper.yaml, with fewer updates.

The rows of groups, units and encoder in the paper's study differ by one switch from `calm`, because the paper's own settings collapse.
Each cell holds the best of the policy's own samples and greedy decodings, the greedy placement at the end, and the share of
ops on the fullest device in the last update's samples (1 = collapsed). Resumable: finished cells are kept.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from experiments import cells, output, training
from experiments.cells import Cell, Job
from experiments.problems import problem_of
from gnnplace.report import results

HERE = Path(__file__).resolve().parent
CLUSTER = "k40-2"
CALM = (  # -0.6 is near the reward of one GPU, -sqrt(0.326 s)
    "--training.advantage.initial=-0.6", "--training.optimizer.lr=0.001",
)  # fmt: skip


class Study(NamedTuple):
    """One configuration, and what is changed in it, on these graphs."""

    config: str
    updates: int
    graphs: tuple[str, ...]
    variants: dict[str, tuple[str, ...]]


STUDIES = (
    Study("gnn", 200, ("inception-v3-b32", "rnnlm-2"), {
        "as configured": (),
        "no warm start": ("--training.warm_start.updates=0",),
        "no self-imitation": ("--training.self_imitation=0",),
        "no message passing": ("--policy.message_passing=false",),
        "no state of devices": ("--policy.state_features=false",),
        "no entropy": ("--training.exploration.entropy_start=0",),
        "moving average": ("--training.advantage.kind=moving-average", "--training.advantage.initial=0"),
        "reward -sqrt(t)": ("--training.reward.kind=sqrt",),
        "16 samples": ("--training.placements=16",),
        "units: weights": ("--policy.units=weights",),
    }),
    Study("paper", 100, ("inception-v3-b32",), {
        "as configured": (),
        "average starts at -0.6": ("--training.advantage.initial=-0.6",),
        "learning rate 0.01": ("--training.optimizer.lr=0.01",),
        "learning rate 0.001": ("--training.optimizer.lr=0.001",),
        "calm: both": CALM,
        "calm, random groups": (*CALM, "--policy.grouper=random"),
        "calm, no groups": (*CALM, "--policy.grouper=none"),
        "calm, coarse units": (*CALM, "--policy.units=coarse"),
        "calm, gnn encoder": (*CALM, "--policy.encoder=gnn"),
    }),
)  # fmt: skip


def train(config: str, graph: str, overrides: tuple[str, ...], seed: int, updates: int) -> Cell:
    """One training run of one variant."""
    problem = problem_of(graph, CLUSTER)
    chosen = training.config_of(config, (f"--seed={seed}", f"--training.updates={updates}", *overrides))
    learner, curve = training.train(chosen, [problem], [training.teacher_of(problem, chosen)])
    fullest = max(curve.of(f"/ops on {name}")[-1] or 0 for name in problem.cluster.device_names)
    return training.outcome(learner) | {"fullest": fullest / problem.num_ops}


def jobs(seeds: int) -> dict[str, Job]:
    """Every cell, by seed first, so that an unfinished run has whole tables."""
    return {
        _name(study.config, graph, variant, seed): (train, (study.config, graph, overrides, seed, study.updates))
        for seed in range(seeds)
        for study in STUDIES
        for graph in study.graphs
        for variant, overrides in study.variants.items()
    }


def _name(config: str, graph: str, variant: str, seed: int | str) -> str:
    return f"{config}/{graph}/{variant}/{seed}"


def table(study: Study, found: dict[str, Cell]) -> str:
    """One row a variant: medians over seeds."""
    header = [f"{graph}: {column}" for graph in study.graphs for column in ("best, ms", "greedy, ms", "ops on the fullest device")]
    return results.markdown_table(["variant", *header], [_row(study, found, variant) for variant in study.variants])


def _row(study: Study, found: dict[str, Cell], variant: str) -> list[str]:
    return [variant, *(column for graph in study.graphs for column in _columns(study, found, graph, variant))]


def _columns(study: Study, found: dict[str, Cell], graph: str, variant: str) -> list[str]:
    prefix = _name(study.config, graph, variant, "")
    chosen = [cell for name, cell in sorted(found.items()) if name.startswith(prefix)]
    times = [_spread([cell[key] for cell in chosen]) for key in ("best_ns", "greedy_ns")]
    return [*times, f"{100 * statistics.median(cell['fullest'] for cell in chosen):.0f} %"]


def _spread(times: list[int | None]) -> str:
    known = [time / 1e6 for time in times if time is not None]
    if len(known) < len(times):
        return f"infeasible in {len(times) - len(known)} of {len(times)}"
    return f"{statistics.median(known):.1f} [{min(known):.1f} - {max(known):.1f}]"


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    settings = {
        study.config: {"updates": study.updates, "variants": {name: list(o) for name, o in study.variants.items()}} for study in STUDIES
    }
    found = cells.compute(HERE / "results" / "ablation.json", jobs(arguments.seeds), settings)
    tables = {study.config: table(study, found) for study in STUDIES}
    output.show("\n".join(tables.values()), tables, arguments, HERE / "results" / "ablation.md")


if __name__ == "__main__":
    main()
