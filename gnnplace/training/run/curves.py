"""The results of a finished or running training: its configuration, learning curves, and best placements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnplace.config import files
from gnnplace.config.run import RunConfig
from gnnplace.formats.placements import read_about
from gnnplace.training.run import checkpoint, mlflow
from gnnplace.training.run import folder as run_folder

APART = ("name", "seed", "runs", "tracking", "register", "trainer")  # knobs in which runs of one method differ
MOST_PROBLEMS = 4  # that have curves of their own
OVERALL = "best_over_one_device", "mean_over_one_device"
VALIDATION = "val/over_best_heuristic", "val/over_bound"

History = dict[int, float]  # an update and the value there


class PastRun(NamedTuple):
    """A run by its folder. `updates` are those of its checkpoint, `curves` are by metric, `best_ns` and `bound_ns` by
    the label of a problem.
    """

    path: Path
    config: RunConfig
    updates: int
    curves: dict[str, History]
    best_ns: dict[str, int]
    bound_ns: dict[str, int]

    @property
    def measured(self) -> bool:
        return self.config.evaluate == "measured"


def read_run(path: Path) -> PastRun:
    """The run in a folder of `gnnplace train`.

    Raises ValueError if it is none, or where it was not tracked and so has no curves.
    """
    if not (path / run_folder.CONFIG).is_file():
        raise ValueError(f"{path}: no folder of a run: there is no {run_folder.CONFIG}")
    config = files.read_config(path / run_folder.CONFIG)
    steps = {file.stem: read_about(file).predicted for file in sorted((path / run_folder.PLACEMENTS).glob("*.json"))}
    labels = sorted(steps)
    updates = checkpoint.policy_of(path / checkpoint.FILE).updates_done if (path / checkpoint.FILE).is_file() else 0
    problem_metrics = (
        [f"{label}/{name}" for label in labels for name in ("best_ns", "mean_ns")]
        if len(labels) <= MOST_PROBLEMS
        else []
    )
    curves = mlflow.histories(path, (*problem_metrics, *OVERALL, *VALIDATION))
    if config.evaluate == "measured":
        best = {label: round(curve[max(curve)]) for label in labels if (curve := curves.get(f"{label}/best_ns"))}
        return PastRun(path, config, updates, curves, best, {})
    predicted = {label: step for label, step in steps.items() if step is not None and step.step_time_ns is not None}
    best = {label: step.step_time_ns for label, step in predicted.items() if step.step_time_ns is not None}
    return PastRun(path, config, updates, curves, best, {label: step.bound_ns for label, step in predicted.items()})


def methods(runs: Sequence[PastRun]) -> dict[str, list[PastRun]]:
    """Runs that differ in nothing but their seed, by name.

    A name is the policy, its encoder, and the knobs that tell it from others with the same two.
    """
    groups: dict[tuple[tuple[str, str], ...], list[PastRun]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted((key, str(value)) for key, value in _knobs(run.config).items())), []).append(run)
    runs_by_name: dict[str, list[PastRun]] = {}
    for knobs, members in groups.items():
        alike = [dict(other) for other, runs_there in groups.items() if _short(runs_there[0]) == _short(members[0])]
        telling = [f"{key} {value}" for key, value in knobs if any(other.get(key) != value for other in alike)]
        runs_by_name[", ".join([_short(members[0]), *telling])] = members
    return runs_by_name


def _short(run: PastRun) -> str:
    policy = run.config.policy
    return f"{policy.kind} ({policy.encodes_with})" if policy.encodes_with else policy.kind


def _knobs(config: RunConfig) -> dict[str, Any]:
    return {key: value for key, value in mlflow.flat(files.to_document(config)) if key.partition(".")[0] not in APART}
