"""What each switch is worth: one is changed at a time, everything else as in the settings of a policy, with fewer updates.

The rows of groups, units and encoder in the study of the published settings differ by one switch from `calm`, because the settings
themselves collapse. Each cell holds the best of the policy's own samples and greedy decodings, the greedy placement at the end, and the
share of ops on the fullest device in the last update's samples (1 = collapsed). Resumable: finished cells are kept.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

from experiments import cells, output, results, training
from experiments.cells import Cell, Job
from experiments.problems import problem_of
from gnnplace.config import files

HERE = Path(__file__).resolve().parent
CLUSTER = "k40-2"
CALM = (  # -0.6 is near the reward of one GPU, -sqrt(0.326 s)
    "--training.credit.initial=-0.6", "--training.optimizer.lr=0.001",
)  # fmt: skip
MOVING_AVERAGE = (  # 0 is the reward of the best single device
    "--training.credit.baseline=moving-average", "--training.credit.initial=0", "--training.credit.normalise=false",
)  # fmt: skip


class Study(NamedTuple):
    """The settings of a policy with an encoder, and what is changed in them, on these graphs."""

    name: str
    policy: str
    settings: str
    encoder: str | None
    updates: int
    graphs: tuple[str, ...]
    variants: dict[str, tuple[str, ...]]


STUDIES = (
    Study("unit-placer", "unit-placer", "tuned", None, 200, ("inception-v3-b32", "rnnlm-2"), {
        "as configured": (),
        "no warm start": ("--training.warm_start.updates=0",),
        "no self-imitation": ("--algorithm.self_imitation=0",),
        "no message passing": ("--policy.rounds=0",),
        "no state of devices": ("--policy.state_features=false",),
        "no entropy": ("--training.exploration.entropy_start=0",),
        "moving average": MOVING_AVERAGE,
        "reward -sqrt(t)": ("--training.reward.kind=sqrt",),
        "16 samples": ("--training.placements=16",),
        "units: weights": ("--policy.units=weights",),
    }),
    Study("hierarchical-published", "hierarchical", "published", "paper", 100, ("inception-v3-b32",), {
        "as configured": (),
        "average starts at -0.6": ("--training.credit.initial=-0.6",),
        "learning rate 0.01": ("--training.optimizer.lr=0.01",),
        "learning rate 0.001": ("--training.optimizer.lr=0.001",),
        "calm: both": CALM,
        "calm, random groups": (*CALM, "--policy.grouper=random"),
        "calm, no groups": (*CALM, "--policy.grouper=none"),
        "calm, coarse units": (*CALM, "--policy.units=coarse"),
        "calm, gnn encoder": (*CALM, "--policy.features=costs", "--policy.neighbours=messages"),
    }),
    Study("hierarchical-tuned", "hierarchical", "tuned", "gnn", 150, ("inception-v3-b32", "nmt-2"), {
        "as configured": (),
        "groups are not pre-trained": ("--training.grouping.updates=0", "--training.grouping.lr_after=1"),
        "groups stay as pre-trained": ("--training.grouping.lr_after=0",),
        "devices by name": ("--policy.devices=names",),
        "one grouping an update": ("--training.groupings=1", "--training.placements=64", *MOVING_AVERAGE),
        "a sample of each grouping": ("--training.groupings=64", "--training.placements=1"),
        "no self-imitation": ("--algorithm.self_imitation=0",),
        "no entropy": ("--training.exploration.entropy_start=0",),
        "entropy of all decisions": ("--training.exploration.entropy_of=[]",),
        "mean over decisions": ("--algorithm.decisions=mean",),
        "PPO": ("--algorithm.kind=ppo",),
        "reward -sqrt(t)": ("--training.reward.kind=sqrt",),
        "sharpness 1": ("--policy.sharpness=1",),
        "128 groups": ("--policy.groups=128",),
        "units: weights": ("--policy.units=weights",),
    }),
)  # fmt: skip


def train(study: Study, graph: str, variant: str, seed: int) -> Cell:
    """One training run of one variant."""
    problem = problem_of(graph, CLUSTER)
    overrides = (f"--seed={seed}", f"--training.updates={study.updates}", *study.variants[variant])
    chosen = training.config_of(study.policy, study.settings, overrides, study.encoder)
    learner, curve = training.train(chosen, [problem], [training.teacher_of(problem, chosen)])
    fullest = max(curve.of(f"/ops on {name}")[-1] or 0 for name in problem.cluster.device_names)
    return training.outcome(learner) | {"fullest": fullest / problem.num_ops}


def jobs(study: Study, seeds: int) -> dict[str, Job]:
    """Every cell, by seed first, so that an unfinished run has whole tables."""
    return {
        f"{graph}/{variant}/{seed}": (train, (study, graph, variant, seed))
        for seed in range(seeds)
        for graph in study.graphs
        for variant in study.variants
    }


def table(study: Study, found: dict[str, Cell]) -> str:
    """One row a variant: medians over seeds."""
    header = [f"{graph}: {column}" for graph in study.graphs for column in ("best, ms", "greedy, ms", "ops on the fullest device")]
    return results.markdown_table(["variant", *header], [_row(study, found, variant) for variant in study.variants])


def _row(study: Study, found: dict[str, Cell], variant: str) -> list[str]:
    return [variant, *(column for graph in study.graphs for column in _columns(found, f"{graph}/{variant}/"))]


def _columns(found: dict[str, Cell], prefix: str) -> list[str]:
    chosen = [cell for name, cell in sorted(found.items()) if name.startswith(prefix)]
    times = [_spread([cell[key] for cell in chosen]) for key in ("best_ns", "greedy_ns")]
    return [*times, f"{100 * statistics.median(cell['fullest'] for cell in chosen):.0f} %"]


def _spread(times: list[int | None]) -> str:
    known = [time / 1e6 for time in times if time is not None]
    if len(known) < len(times):
        return f"infeasible in {len(times) - len(known)} of {len(times)}"
    return f"{statistics.median(known):.1f} [{min(known):.1f} - {max(known):.1f}]"


def settings(study: Study) -> dict[str, Any]:
    """What a study's cells have in common: cells of two settings never mix."""
    configured = files.to_document(training.config_of(study.policy, study.settings, (), study.encoder))
    return {"updates": study.updates, "configured": configured, "variants": {name: list(o) for name, o in study.variants.items()}}


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"{', '.join(study.name for study in STUDIES)}; all unless given")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of cells and tables")
    arguments = parser.parse_args()
    for study in STUDIES:
        if study.name in (arguments.studies or [each.name for each in STUDIES]):
            path = arguments.results / f"{study.name}.json"
            text = table(study, cells.compute(path, jobs(study, arguments.seeds), settings(study)))
            output.show(text, {study.name: text}, arguments, path.with_suffix(".md"))


if __name__ == "__main__":
    main()
