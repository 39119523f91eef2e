"""MLflow runs on SQLite: batches, idempotent steps, stale runs; read back through MLflow's own client."""

import resource
from multiprocessing import get_context

import mlflow
import pytest

from gnnplace.training.run import mlflow as tracking
from gnnplace.training.run.mlflow import BATCH_STEPS, MlflowRun
from gnnplace.training.run.mlflow_store import database
from gnnplace.version import VERSION


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def opened(runs, name, in_use=lambda path: True):
    (runs / name).mkdir(exist_ok=True)
    return MlflowRun(runs / name, {"training": {"updates": 3}, "name": name}, in_use)


def history(runs, run, key):
    client = mlflow.MlflowClient(tracking_uri=database(runs))
    return [(metric.step, metric.value) for metric in client.get_metric_history(run.run_id, key)]


def status(runs, run):
    return mlflow.MlflowClient(tracking_uri=database(runs)).get_run(run.run_id).info.status


@pytest.mark.slow
def test_metrics_come_in_batches_and_a_resumed_run_logs_no_step_twice(runs):
    run = opened(runs, "a-1")
    for step in range(BATCH_STEPS + 2):
        run.log_metrics({"seconds": 0.5, "nmt.k40-2/ops on cpu:0": step}, step)
    assert len(history(runs, run, "seconds")) == BATCH_STEPS  # the rest is kept: a killed run loses it
    again = opened(runs, "a-1")
    assert again.run_id == run.run_id
    for step in range(BATCH_STEPS - 5, BATCH_STEPS + 5):
        again.log_metrics({"seconds": 0.5, "nmt.k40-2/ops on cpu:0": step}, step)
    again.end("FINISHED")
    assert history(runs, run, "nmt.k40-2/ops on cpu:0") == [(step, float(step)) for step in range(BATCH_STEPS + 5)]
    assert status(runs, run) == "FINISHED"


def test_parameters_and_artifacts(runs):
    run = opened(runs, "b-1")
    (runs / "b-1" / "config.yaml").write_text("name: b\n")
    run.artifact(runs / "b-1" / "config.yaml")
    run.end("FINISHED")
    stored = mlflow.MlflowClient(tracking_uri=database(runs)).get_run(run.run_id)
    assert stored.data.params == {"training.updates": "3", "name": "b-1"}
    assert stored.data.tags["gnnplace.version"] == VERSION
    (artifact,) = (runs / "artifacts").rglob("config.yaml")
    assert artifact.read_text() == "name: b\n"


def test_a_run_that_nothing_runs_is_marked_as_killed_by_the_next(runs):
    dead, alive = opened(runs, "c-1"), opened(runs, "c-2")
    opened(runs, "c-3", in_use=lambda path: path.name != "c-1").end("FINISHED")
    assert (status(runs, dead), status(runs, alive)) == ("KILLED", "RUNNING")


@pytest.mark.parametrize("checkout", [True, False])
def test_a_run_in_a_checkout_says_its_commit(runs, monkeypatch, checkout):
    monkeypatch.setattr(tracking.package_data, "is_checkout", lambda: checkout)
    monkeypatch.setattr(tracking.package_data, "commit", lambda folder: "0123456789ab+changes")
    run = opened(runs, f"d-{checkout}")
    tags = mlflow.MlflowClient(tracking_uri=database(runs)).get_run(run.run_id).data.tags
    assert tags.get("mlflow.source.git.commit") == ("0123456789ab+changes" if checkout else None)


@pytest.mark.slow
def test_a_database_that_can_not_be_written_is_one_line(tmp_path):
    run = opened(tmp_path, "a-1")
    run.log_metrics({"seconds": 0.5}, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # as a disk that is full
        with pytest.raises(OSError, match=r"^\[Errno 5\] MLflow: .*(full|I/O error).*: '.*/mlflow\.db'$"):
            run.end("FINISHED")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    run.end("FINISHED")
    assert history(tmp_path, run, "seconds") == [(0, 0.5)]


@pytest.mark.slow
def test_runs_that_begin_at_once_share_a_new_database(tmp_path):
    processes = [
        get_context("fork").Process(target=lambda name: opened(tmp_path, name).end("FINISHED"), args=(f"a-{n}",)) for n in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = mlflow.MlflowClient(tracking_uri=database(tmp_path)).search_runs(["1"])
    assert sorted((run.info.run_name, run.info.status) for run in found) == [(f"a-{n}", "FINISHED") for n in range(3)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-0", "a-1", "a-2", "mlflow.db"]


def test_what_is_said_of_a_run_as_a_whole_stands_beside_its_curves(runs):
    (runs / "e-1").mkdir()
    run = MlflowRun(runs / "e-1", {}, lambda path: True, {"mlflow.note.content": "what it is"})
    run.log_metrics({"seconds": 0.5}, 0)
    run.end("FINISHED")
    run.log_once({"dlrm.k40-2/bound_ns": 7.0})  # baselines are asked after the training
    client = mlflow.MlflowClient(tracking_uri=database(runs))
    stored = client.get_run(run.run_id)
    assert stored.data.tags["mlflow.note.content"] == "what it is" and stored.info.status == "FINISHED"
    assert stored.data.metrics == {"seconds": 0.5, "dlrm.k40-2/bound_ns": 7.0}
    experiment = client.get_experiment_by_name("gnnplace")
    assert run.page.endswith(f"/experiments/{experiment.experiment_id}/runs/{run.run_id}")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"  # its page begins with the runs
