"""MLflow runs on SQLite beside file artifacts, in the folder of all runs; no server, and nothing is sent anywhere.

Metrics are written in batches. Their steps are idempotent: a resumed run logs no step twice. Runs that stand as RUNNING
while nothing runs (a machine that went down, SIGKILL) are marked as killed when the next run starts.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.loggers import Logger

EXPERIMENT = "gnnplace"
DATABASE, ARTIFACTS = "mlflow.db", "artifacts"
FOLDER_TAG = "gnnplace.folder"
STEP_METRIC = "seconds"  # logged at every step
MOST_METRICS, MOST_PARAMETERS, MOST_CHARACTERS = 1000, 100, 500  # of one batch, and of one parameter
BATCH_STEPS = 50

Status = Literal["FINISHED", "KILLED", "FAILED"]


def database(runs: Path) -> str:
    """The tracking address of a folder of runs: what `mlflow ui --backend-store-uri` takes."""
    return f"sqlite:///{(runs / DATABASE).resolve()}"


class MlflowRun(Logger):
    """The MLflow run of one run folder (an earlier one is gone on with), as a Lightning logger."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any], in_use: Callable[[Path], bool]) -> None:
        super().__init__()
        self._client = _client(folder.parent)
        self._folder = folder
        experiment = _experiment(self._client, folder.parent)
        _mark_stale(self._client, experiment, folder, in_use)
        self.run_id, self._last_step = self._open(experiment, parameters)
        self._metrics: list[tuple[str, float, int, int]] = []
        self._steps = 0

    def _open(self, experiment: str, parameters: Mapping[str, Any]) -> tuple[str, int]:
        """The run of this folder and the last step that it has logged, -1 for a new one."""
        known = self._client.search_runs([experiment], f"tags.`{FOLDER_TAG}` = '{self._folder.name}'", max_results=1)
        if known:
            run_id = known[0].info.run_id
            self._client.update_run(run_id, status="RUNNING")
            return run_id, max((metric.step for metric in self._client.get_metric_history(run_id, STEP_METRIC)), default=-1)
        run_id = self._client.create_run(experiment, run_name=self._folder.name, tags={FOLDER_TAG: self._folder.name}).info.run_id
        self._log_parameters(run_id, parameters)
        return run_id, -1

    def _log_parameters(self, run_id: str, parameters: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        rows = [Param(name, str(value)[:MOST_CHARACTERS]) for name, value in _flat(parameters)]
        for low in range(0, len(rows), MOST_PARAMETERS):
            self._client.log_batch(run_id, params=rows[low : low + MOST_PARAMETERS])

    @property
    def name(self) -> str:
        return EXPERIMENT

    @property
    def version(self) -> str:
        return self.run_id

    def log_hyperparams(self, *params: Any, **named: Any) -> None:
        """Nothing: parameters are those of the configuration, logged when the run was made."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Keeps the metrics of one step until a batch of steps is full; a step that was logged before is left out."""
        assert step is not None
        if step <= self._last_step:
            return
        now = time.time_ns() // 1_000_000
        self._metrics += [(key, float(value), now, step) for key, value in metrics.items()]
        self._steps += 1
        if self._steps >= BATCH_STEPS:
            self.save()

    def save(self) -> None:
        """Writes the metrics that are kept."""
        from mlflow.entities import Metric

        rows = [Metric(*row) for row in self._metrics]
        for low in range(0, len(rows), MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=rows[low : low + MOST_METRICS])
        self._metrics, self._steps = [], 0

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Copies a file to the run's artifacts, in place of one of that name."""
        self._client.log_artifact(self.run_id, str(path), folder)

    def end(self, status: Status) -> None:
        """Writes what is kept and ends the run."""
        self.save()
        self._client.set_terminated(self.run_id, status)


def _client(runs: Path) -> Any:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    import mlflow

    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return mlflow.MlflowClient(tracking_uri=database(runs))


def _experiment(client: Any, runs: Path) -> str:
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    return str(client.create_experiment(EXPERIMENT, artifact_location=(runs / ARTIFACTS).resolve().as_uri()))


def _mark_stale(client: Any, experiment: str, own: Path, in_use: Callable[[Path], bool]) -> None:
    for run in client.search_runs([experiment], "attributes.status = 'RUNNING'"):
        name = run.data.tags.get(FOLDER_TAG)
        if name is not None and name != own.name and not in_use(own.parent / name):
            client.set_terminated(run.info.run_id, "KILLED")


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
