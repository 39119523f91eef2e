"""MLflow runs in the store of the folder of all runs (`mlflow_store.py`); no server, and nothing is sent anywhere.

Lightning's own logger, with three additions: metrics are written in batches, a resumed run logs no step twice, and runs
that stand as RUNNING while nothing runs (a machine that went down, SIGKILL) are marked as killed when the next run
starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.utilities import rank_zero_only

from gnnplace import package_data
from gnnplace.cluster import Cluster
from gnnplace.formats import atomic
from gnnplace.isolation.under_way import locked
from gnnplace.training.run.mlflow_store import DATABASE, EXPERIMENT, database, experiment, in_one_line, local, opened
from gnnplace.version import VERSION

FOLDER_TAG, VERSION_TAG = "gnnplace.folder", "gnnplace.version"
COMMIT_TAG = "mlflow.source.git.commit"  # MLflow's own name for it
STEP_METRIC = "seconds"  # logged at every step
MOST_METRICS, MOST_PARAMETERS, MOST_CHARACTERS = 1000, 100, 6000  # of one batch, and of one parameter
BATCH_STEPS = 50

Status = Literal["FINISHED", "KILLED", "FAILED"]


class Registered(NamedTuple):
    """A version of a model in the registry."""

    name: str
    version: int


def histories(folder: Path, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """The values of a run's metrics by update, from the run's folder; metrics that it never logged are left out.

    Raises ValueError if the run was not tracked.
    """
    runs, name = folder.resolve().parent, folder.resolve().name
    if not (runs / DATABASE).exists():
        raise ValueError(f"{folder}: has no learning curves: there is no {runs / DATABASE}, where MLflow keeps them")
    client = opened(runs)
    with in_one_line(runs):
        experiments = [
            match.experiment_id for match in client.search_experiments(filter_string=f"name = '{EXPERIMENT}'")
        ]
        matches = (
            client.search_runs(experiments, f"tags.`{FOLDER_TAG}` = '{name}'", max_results=1) if experiments else []
        )
        if not matches:
            raise ValueError(
                f"{folder}: has no learning curves: there is no MLflow run of that name in {runs / DATABASE}"
            )
        run, logged = matches[0].info.run_id, matches[0].data.metrics
        return {
            name: {point.step: point.value for point in client.get_metric_history(run, name)}
            for name in names
            if name in logged
        }


class MlflowRun(MLFlowLogger):
    """The MLflow run of one run folder; an earlier one is continued."""

    def __init__(
        self,
        folder: Path,
        parameters: Mapping[str, Any],
        in_use: Callable[[Path], bool],
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._runs = folder.parent
        client = opened(folder.parent)
        with locked(folder.parent / f"{DATABASE}.lock"), in_one_line(folder.parent):
            group = experiment(client, folder.parent)
            _mark_stale(client, group, folder, in_use)
            run, self._last_step = _open(client, group, folder.name, parameters, tags)
            self._artifacts = local(client.get_run(run).info.artifact_uri)
        self.page = f"http://127.0.0.1:5000/#/experiments/{group}/runs/{run}"  # of `mlflow ui`
        super().__init__(EXPERIMENT, tracking_uri=database(folder.parent), run_id=run)
        self._metrics: list[tuple[str, float, int, int]] = []
        self._steps = 0
        self.registered: Registered | None = None

    def log_hyperparams(self, *params: Any, **named: Any) -> None:
        """Nothing: the configuration was logged when the run was made."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Keeps the metrics of one step until a batch of steps is full; a step that was logged before is left out."""
        assert step is not None
        if step <= self._last_step:
            return
        now = time.time_ns() // 1_000_000
        self._metrics += [(key, float(value), now, step) for key, value in metrics.items()]
        self._steps += 1
        if self._steps >= BATCH_STEPS:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        """Writes the kept metrics."""
        from mlflow.entities import Metric

        rows = [Metric(*row) for row in self._metrics]
        with in_one_line(self._runs):
            for low in range(0, len(rows), MOST_METRICS):
                self.experiment.log_batch(self.run_id, metrics=rows[low : low + MOST_METRICS])
        self._metrics, self._steps = [], 0

    @rank_zero_only
    def log_once(self, metrics: Mapping[str, float]) -> None:
        """Writes metrics of the run as a whole, at step 0; a run that has ended takes them, too."""
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        with in_one_line(self._runs):
            self.experiment.log_batch(
                self.run_id, metrics=[Metric(key, float(value), now, 0) for key, value in metrics.items()]
            )

    def finalize(self, status: str = "success") -> None:
        """Writes the kept metrics; `end` ends the run, which logs more after the last update."""
        self.save()

    @rank_zero_only
    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Copies a file to the run's artifacts, in place of one of that name: whole, or not at all."""
        with in_one_line(self._runs):
            if self._artifacts is None:
                self.experiment.log_artifact(self.run_id, str(path), folder)
                return
            target = self._artifacts / (folder or "") / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(target, path.read_bytes())

    @rank_zero_only
    def register(self, checkpoint: Path, name: str, cluster: Cluster) -> None:
        """Registers a checkpoint's policy, which can place on `cluster`, as the next version of a model; once a run."""
        from gnnplace.training.run import mlflow_registry  # imports mlflow, which takes seconds

        with in_one_line(self._runs):
            version = mlflow_registry.register(self.experiment, str(self.run_id), checkpoint, name, cluster)
        self.registered = Registered(name, version)

    @rank_zero_only
    def end(self, status: Status) -> None:
        """Writes the kept metrics and ends the run."""
        self.save()
        with in_one_line(self._runs):
            self.experiment.set_terminated(self.run_id, status)


def _open(
    client: Any, experiment: str, name: str, parameters: Mapping[str, Any], more: Mapping[str, str]
) -> tuple[str, int]:
    """The run of the folder of this name, and its last logged step, -1 for a new run."""
    matches = client.search_runs([experiment], f"tags.`{FOLDER_TAG}` = '{name}'", max_results=1)
    if matches:
        run = matches[0].info.run_id
        client.update_run(run, status="RUNNING")
        return run, max((metric.step for metric in client.get_metric_history(run, STEP_METRIC)), default=-1)
    commit = package_data.commit(package_data.CHECKOUT) if package_data.is_checkout() else None
    tags = {**more, FOLDER_TAG: name, VERSION_TAG: VERSION} | ({} if commit is None else {COMMIT_TAG: commit})
    run = client.create_run(experiment, run_name=name, tags=tags).info.run_id
    _log_parameters(client, run, parameters)
    return run, -1


def _log_parameters(client: Any, run: str, parameters: Mapping[str, Any]) -> None:
    """One parameter a knob.

    MLflow takes values of at most 6,000 characters; a longer one is replaced by a reference to the artifact.
    """
    from mlflow.entities import Param

    def shown(value: Any) -> str:
        text = str(value)
        return text if len(text) <= MOST_CHARACTERS else f"{len(text)} characters: see the artifact config.yaml"

    rows = [Param(name, shown(value)) for name, value in flat(parameters)]
    for low in range(0, len(rows), MOST_PARAMETERS):
        client.log_batch(run, params=rows[low : low + MOST_PARAMETERS])


def _mark_stale(client: Any, experiment: str, folder: Path, in_use: Callable[[Path], bool]) -> None:
    for run in client.search_runs([experiment], "attributes.status = 'RUNNING'"):
        name = run.data.tags.get(FOLDER_TAG)
        if name is not None and name != folder.name and not in_use(folder.parent / name):
            client.set_terminated(run.info.run_id, "KILLED")


def flat(parameters: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted name."""
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
