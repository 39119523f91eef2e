"""`gnnplace train --evaluate measured` and `--init` from end to end, on a workload of known times and on a real one."""

import json
import os
from pathlib import Path

import mlflow
import pytest
import torch
from lightning import Callback
from safetensors.torch import load_file
from support.fake_workload import CHAINS, STEP_NS, requests

from gnnplace import cli
from gnnplace.execution import profile
from gnnplace.execution.ledger import Ledger
from gnnplace.execution.machine import Gpu
from gnnplace.formats.clusters import read_cluster
from gnnplace.formats.placements import read_placement
from gnnplace.sources import code_graph
from gnnplace.training.run import in_folder as training_run
from gnnplace.training.run import problems as run_problems
from gnnplace.training.run.checkpoint import FILE, SafetensorsIO, policy_of
from gnnplace.training.run.mlflow_store import database

SMALL = ["--policy.units=ops", "--policy.width=8", "--policy.rounds=1", "--policy.hidden=8", "-q"]
QUICK = [
    "--policy=unit-placer",
    *SMALL,
    "--training.placements=4",
    "--training.warm_start.updates=1",
    "--training.updates=4",
    "--training.greedy_every=2",
]
DEVICE = {"kind": "gpu", "memory_bytes": 10**9, "flops_per_s": 10**12, "memory_bytes_per_s": 10**12}
BRANCHES = """
import torch
from torch import nn
from gnnplace.frontends.torch.step import TorchStep

class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.left(x).relu() + self.right(x).relu()

def step():
    return TorchStep(Branches(), lambda module, x: module(x).square().mean(), (torch.randn(4, 8),), "sgd")
"""


class Failed(Callback):
    """The machine goes down in the middle of the update after so many."""

    def __init__(self, updates):
        self.updates = updates

    def on_train_batch_end(self, trainer, pl_module, *batch):
        if pl_module.updates_done == self.updates:
            raise RuntimeError("the machine went down")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The two GPUs that the chains stand on, as a file."""
    path = tmp_path_factory.mktemp("cluster") / "pair.json"
    links = [{"src": f"gpu:{a}", "dst": f"gpu:{1 - a}", "bandwidth_bytes_per_s": 10**9} for a in range(2)]
    devices = [DEVICE | {"name": f"gpu:{d}"} for d in range(2)]
    path.write_text(json.dumps({"format": "gnnplace.cluster", "version": 1, "name": "pair", "devices": devices, "links": links}))
    return path


@pytest.fixture
def train(cluster, tmp_path, monkeypatch):
    """What runs the command on the workload of known times, which logs into `tmp_path`; the runs lie in `tmp_path`, too."""
    for module in (run_problems, code_graph):
        monkeypatch.setattr(module, "LOADER", "support.fake_workload:load")
    monkeypatch.setattr(profile, "gpus", lambda: (Gpu("Imagined", 1),))

    def run(name: str, *arguments: str, runs: Path = tmp_path) -> int:
        (tmp_path / runs).mkdir(exist_ok=True)
        problems = f"--problems=[['{runs}:{name}', {cluster}]]"
        return cli.main(["train", problems, *QUICK, "--evaluate=measured", "--runs", str(runs), *arguments])

    return run


def tensors(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / FILE)


def test_a_run_learns_from_what_was_measured_and_says_what_came_of_it(train, tmp_path, capfd, cluster):
    assert train("fragile", "--json") == 0
    printed = json.loads(capfd.readouterr().out)
    run, (found,) = tmp_path / "unit-placer-1", printed["measured"]
    placements = [record for record in Ledger(run / "measurements.jsonl") if "device" in record]
    assert found["candidates"] == len(placements) >= 4 and found == json.loads((run / "measured.json").read_text())[0]
    assert [record["by"] for record in placements[:3]] == ["heuristics"] * 3 and "policy" in {record["by"] for record in placements[3:]}
    failed = [record["outcome"] for record in placements if record["outcome"] != "ok"]
    assert failed and set(failed) <= {"out_of_memory", "crash"}  # one device alone, at least
    best = SafetensorsIO().load_checkpoint(run / FILE)["gnnplace"]["best"][0]["step_time_ns"]
    assert best % STEP_NS % (STEP_NS // 10) == 2 and best < 6 * STEP_NS  # by the formula, not by the simulator
    assert found["outcome"] == "ok" and (found["same"] or found["faster"]["low"] <= found["faster"]["median"] <= found["faster"]["high"])
    document = json.loads((run / "placements" / "chains-2x3.pair.json").read_text())
    assert document["predicted"]["step_time_ns"] < STEP_NS  # what a document predicts is simulated
    read_placement(run / "placements" / "chains-2x3.pair.json", CHAINS.graph, read_cluster(cluster))
    client = mlflow.MlflowClient(tracking_uri=database(tmp_path))
    logged = client.get_run(printed["mlflow"]["run"]).data.metrics
    assert logged["chains-2x3.pair/measured/candidates"] == found["candidates"] and logged["chains-2x3.pair/best_ns"] == best
    assert "measured.json" in {artifact.path for artifact in client.list_artifacts(printed["mlflow"]["run"])}


def test_a_run_that_went_down_is_resumed_without_measuring_again_and_ends_like_an_uninterrupted_one(train, tmp_path, monkeypatch, capfd):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    arguments = ("--tracking=none", "--training.checkpoint_every=2")
    assert train("fragile", *arguments, runs=whole) == 0
    fit = training_run.fit
    monkeypatch.setattr(training_run, "fit", lambda *given, callbacks, **named: fit(*given, callbacks=[*callbacks, Failed(3)], **named))
    with pytest.raises(RuntimeError, match="went down"):
        train("fragile", *arguments, runs=parts)
    monkeypatch.setattr(training_run, "fit", fit)
    ledger = parts / "unit-placer-1" / "measurements.jsonl"
    before, started = ledger.read_bytes(), requests(parts, "start")
    assert policy_of(parts / "unit-placer-1" / FILE).updates_done == 2
    assert cli.main(["train", "--resume", str(parts / "unit-placer-1"), "-q"]) == 0
    assert ledger.read_bytes().startswith(before) and requests(parts, "start") > started
    assert requests(parts, "start") == requests(whole, "start")  # so nothing twice
    assert [dict(r) for r in Ledger(ledger)] == [dict(r) for r in Ledger(whole / "unit-placer-1" / "measurements.jsonl")]
    expected, resumed = tensors(whole / "unit-placer-1"), tensors(parts / "unit-placer-1")
    assert expected.keys() == resumed.keys() and all(torch.equal(expected[name], resumed[name]) for name in expected)
    assert (parts / "unit-placer-1" / "measured.json").read_text() == (whole / "unit-placer-1" / "measured.json").read_text()
    started = requests(parts, "start")
    assert cli.main(["train", "--resume", str(parts / "unit-placer-1"), "-q"]) == 0  # it is done
    assert requests(parts, "start") == started


def test_a_policy_of_the_simulation_is_tuned_on_measurements(train, cluster, tmp_path, capfd):
    simulated = tmp_path / "simulated"
    simulated.mkdir()
    other = [f"--problems=[['{simulated}:plain', {cluster}]]", "--training.updates=0", "--tracking=none", "--runs", str(simulated)]
    assert cli.main(["train", *QUICK, *other]) == 0
    assert requests(simulated, "start") == 0  # a workload is traced for the simulator, and not run
    checkpoint = simulated / "unit-placer-1" / "checkpoint.safetensors"
    tuned = ("--init", str(checkpoint), "--training.warm_start.updates=0", "--tracking=none")
    assert train("plain", *tuned, "--training.updates=0") == 0
    weights, start = tensors(tmp_path / "unit-placer-1"), tensors(checkpoint.parent)
    names = [name for name in weights if name.startswith("state_dict/policy.") and "range" not in name]
    assert names and all(torch.equal(weights[name], start[name]) for name in names)
    assert train("plain", *tuned, "--training.updates=2") == 0
    assert any(not torch.equal(tensors(tmp_path / "unit-placer-2")[name], start[name]) for name in names)


def test_measurements_on_gpus_are_kept_by_the_gpus_that_there_are(train, tmp_path, monkeypatch):
    untrained = ("--training.updates=0", "--training.warm_start.updates=0", "--tracking=none")
    keys = []
    for name in ("One", "Two"):
        monkeypatch.setattr(profile, "gpus", lambda name=name: (Gpu(name, 1),))
        (tmp_path / name).mkdir()
        assert train("plain", *untrained, "--runs", str(tmp_path / name)) == 0
        keys.append({record["key"] for record in Ledger(tmp_path / name / "unit-placer-1" / "measurements.jsonl")})
    assert keys[0] and not keys[0] & keys[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--init", "nowhere"], "nowhere: there is no checkpoint"),
        (["--costs=[nowhere.json]"], "nowhere.json"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(train, tmp_path, arguments, words, capfd):
    assert train("plain", *arguments, "--tracking=none") == 4
    complaint = capfd.readouterr().err
    assert words in complaint and complaint.count("\n") == 1 and not list(tmp_path.glob("unit-placer-*"))


def test_a_machine_that_cannot_run_it_is_said_before_training(train, tmp_path, capfd):
    assert train("foreign", "--tracking=none") == 4
    assert "can't be measured on pair: unsupported: no such devices here" in capfd.readouterr().err


def test_a_workload_that_cannot_be_loaded_ends_the_run_with_its_outcome(cluster, tmp_path, capfd):
    (tmp_path / "dies.py").write_text("import os\n\ndef step():\n    os._exit(3)\n")
    arguments = [f"--problems=[['{tmp_path}/dies.py:step', {cluster}]]", "--evaluate=measured", "--tracking=none", "--runs", str(tmp_path)]
    assert cli.main(["train", *arguments, "-q"]) == 5
    assert "crash: load: " in capfd.readouterr().err and not list(tmp_path.glob("unit-placer-*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--evaluate=guessed"], "evaluate"),
        (["--measured.limit_s=5"], "measured: nothing is measured where evaluate is 'simulated'"),
        (["--evaluate=measured", "--measured.limit_s=0"], "measured.limit_s: 0.0 is not above 0"),
        (["--costs=[a.json, b.json]"], "costs: 2 files for 1 problems"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(arguments, words, capfd):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["train", *arguments])
    complaint = capfd.readouterr().err
    assert exit_.value.code == 2 and words in complaint and complaint.count("\n") == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two CPU devices need two cores")
def test_a_real_step_is_trained_on_two_cores(tmp_path, capfd):
    (tmp_path / "branches.py").write_text(BRANCHES)
    problems = f"--problems=[['{tmp_path}/branches.py:step', cpu-2]]"
    arguments = ["--evaluate=measured", "--measured.limit_s=600", "--tracking=none", "--runs", str(tmp_path), "--json"]
    assert cli.main(["train", problems, *QUICK, "--training.updates=2", *arguments]) == 0
    (found,) = json.loads(capfd.readouterr().out)["measured"]
    records = [record for record in Ledger(tmp_path / "unit-placer-1" / "measurements.jsonl") if "device" in record]
    assert found["outcome"] == "ok" and found["candidates"] == len(records) and all(r["outcome"] == "ok" for r in records)
    assert all(len(r["step_ns"]) == 5 and min(r["step_ns"]) > 0 and sum(r["peak_memory_bytes"]) > 0 for r in records)
