"""A trained policy in MLflow's registry: logged from a run, loaded through MLflow alone, and placing what it never saw."""

import json

import mlflow
import pandas as pd
import pytest
from support.graphs import chains

import gnnplace as gp
from gnnplace import cli
from gnnplace.formats.clusters import cluster_document
from gnnplace.formats.graphs import graph_document
from gnnplace.formats.placements import read_placement
from gnnplace.placement import scheduled
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import zero_shot
from gnnplace.training.run.mlflow import MlflowRun
from gnnplace.training.run.mlflow_store import database

SEEN, UNSEEN = chains(2, 3, 2), chains(3, 2, 3)
SMALL = {
    "policy.units": "ops", "policy.width": 8, "policy.rounds": 1, "policy.hidden": 8,
    "training.updates": 1, "training.warm_start.updates": 0, "training.placements": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    """The run of a tiny checkpoint that is registered twice, the checkpoint, and the version as MLflow loads it."""
    runs = tmp_path_factory.mktemp("runs")
    (runs / "tiny-1").mkdir()
    checkpoint = runs / "tiny-1" / "checkpoint.safetensors"
    gp.train(SEEN, "unit-placer", knobs=SMALL).save(checkpoint)
    run = MlflowRun(runs / "tiny-1", {}, in_use=lambda path: True)
    for _ in range(2):
        run.register(checkpoint, "tiny", SEEN.cluster)
    run.end("FINISHED")
    mlflow.set_tracking_uri(database(runs))
    try:
        yield run, checkpoint, mlflow.pyfunc.load_model("models:/tiny/1")
    finally:
        mlflow.set_tracking_uri(None)


def row(problem):
    return {"graph": json.dumps(graph_document(problem.graph)), "cluster": json.dumps(cluster_document(problem.cluster))}


@pytest.mark.slow
def test_a_run_registers_its_policy_once_and_ends_as_it_ended(registered):
    run, _, _ = registered
    client = mlflow.MlflowClient(tracking_uri=run.experiment.tracking_uri)
    (version,) = client.search_model_versions("name = 'tiny'")
    assert run.registered == ("tiny", 1) and version.run_id == run.run_id
    assert client.get_run(run.run_id).info.status == "FINISHED"


@pytest.mark.slow
@pytest.mark.parametrize("params", [None, {"samples": 8, "seed": 1}])
def test_it_places_an_unseen_graph_as_its_checkpoint_does(registered, params):
    _, checkpoint, model = registered
    found = model.predict(pd.DataFrame([row(UNSEEN), row(SEEN)]), params)
    planner = zero_shot.planner(checkpoint, **(params or {}))
    for problem, each in zip((UNSEEN, SEEN), found.itertuples(), strict=True):
        placement = read_placement(each.placement.encode(), problem.graph, problem.cluster)
        expected = scheduled(planner(problem), "critical-path")
        assert placement.device.tolist() == expected.device.tolist() and placement.schedule == "critical-path"
        assert each.step_time_ns == simulate(problem, [expected])[0].step_time_ns and each.infeasible is None


@pytest.mark.slow
def test_its_document_is_that_of_gnnplace_place(registered, tmp_path):
    _, checkpoint, model = registered
    for name, text in row(UNSEEN).items():
        (tmp_path / f"{name}.json").write_text(text)
    paths = {name: str(tmp_path / f"{name}.json") for name in ("graph", "cluster")}
    written = tmp_path / "placement.json"
    assert (
        cli.main(["place", paths["graph"], "--cluster", paths["cluster"], "--checkpoint", str(checkpoint), "-q", "-o", str(written)]) == 0
    )
    (text,) = model.predict([paths])["placement"]  # dicts, and paths
    documents = [json.loads(text), json.loads(written.read_text())]
    for document in documents:
        del document["provenance"]["wall_ns"]
    assert documents[0] == documents[1]


@pytest.mark.slow
def test_its_input_example_and_signature_hold(registered):
    _, _, model = registered
    found = model.predict(model.input_example)
    assert found.columns.tolist() == model.metadata.get_output_schema().input_names()
    assert (found["step_time_ns"] > 0).all() and json.loads(found["placement"][0])["format"] == "gnnplace.placement"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"graph": '{"format": '}, "row 0: graph: line 1 column"),
        ({"graph": "no-such-graph"}, "row 0: graph: 'no-such-graph' is no"),
        ({"graph": "code.py:step"}, "row 0: graph: code.py:step: a registered model runs no code"),
        ({"graph": "/nowhere/graph.json"}, "row 0: graph: [Errno 2]"),
        ({"cluster": "k41-2"}, "row 0: cluster: 'k41-2' is no cluster preset"),
        ({"cluster": "{}"}, "row 0: cluster: format: is missing"),
    ],
)
def test_wrong_input_is_one_line_with_its_row(registered, change, words):
    with pytest.raises(ValueError) as caught:
        registered[2].predict(pd.DataFrame([row(SEEN) | change]))
    assert str(caught.value).startswith(words) and "\n" not in str(caught.value)


@pytest.mark.slow
def test_wrong_params_are_refused(registered):
    with pytest.raises(ValueError, match="samples: -1 is below 0"):
        registered[2].predict(pd.DataFrame([row(SEEN)]), {"samples": -1})
