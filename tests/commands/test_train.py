"""`gnnplace train` from end to end: files, table, JSON, tracking, interruption and resumption, and wrong input in one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlflow
import pytest
import torch
from support.graphs import chains
from support.processes import LATE_S, START_UP_S
from support.short_searches import shorten_searches

from gnnplace import cli
from gnnplace.placement import check
from gnnplace.portfolio import planners
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import zero_shot
from gnnplace.training.run.checkpoint import FILE, policy_of
from gnnplace.training.run.mlflow_store import database

OP = {"kind": "MatMul", "canonical_kind": "matmul", "phase": "forward", "time_ns": {"gpu": 1000}, "outputs": [{"bytes": 100}]}
DEVICE = {"kind": "gpu", "memory_bytes": 10**9, "flops_per_s": 10**12, "memory_bytes_per_s": 10**12}
SMALL = [
    "--policy=unit-placer",
    "--policy.units=ops",
    "--policy.width=8",
    "--policy.rounds=1",
    "--policy.hidden=8",
    "--training.placements=8",
]
QUICK = [*SMALL, "--training.warm_start.updates=2", "--training.updates=4", "--training.checkpoint_every=2", "-q"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two chains of three ops and two equal GPUs, as JSON files: the `--problems` option that names them."""
    folder = tmp_path_factory.mktemp("files")
    ops = [OP | {"name": f"c{chain}/{i}"} for chain in range(2) for i in range(3)]
    edges = [[3 * chain + i, 0, 3 * chain + i + 1] for chain in range(2) for i in range(2)]
    graph = {"format": "gnnplace.graph", "version": 1, "name": "two chains", "ops": ops, "edges": edges}
    links = [{"src": f"gpu:{a}", "dst": f"gpu:{1 - a}", "bandwidth_bytes_per_s": 10**9} for a in range(2)]
    devices = [DEVICE | {"name": f"gpu:{d}"} for d in range(2)]
    cluster = {"format": "gnnplace.cluster", "version": 1, "name": "pair", "devices": devices, "links": links}
    (folder / "graph.json").write_text(json.dumps(graph))
    (folder / "cluster.json").write_text(json.dumps(cluster))
    return f"--problems=[[{folder}/graph.json, {folder}/cluster.json]]"


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """The runs folder of a finished run with tracking, and what the command printed."""
    runs = tmp_path_factory.mktemp("runs")
    out = runs / "out.txt"
    with out.open("w") as stdout:
        saved, sys.stdout = sys.stdout, stdout
        try:
            assert cli.main(["train", files, *QUICK, "--runs", str(runs), "--register=two-chains", "--json"]) == 0
        finally:
            sys.stdout = saved
    return runs, json.loads(out.read_text())


@pytest.mark.slow
def test_a_run_of_a_step_of_micro_batches_goes_on_with_it(files, tmp_path, capsys):
    arguments = ["train", files, *QUICK, "--tracking", "none", "--runs", str(tmp_path)]
    assert cli.main([*arguments, "--micro-batches", "2", "--copies", "free", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (problem,) = printed["problems"]
    assert problem["ops"] == 12 and all(row["micro_batch_time_ns"] * 2 == row["step_time_ns"] for row in problem["planners"])
    assert json.loads(Path(problem["placement"]).read_text())["micro_batches"] == 2
    assert cli.main(["train", "--resume", printed["run"], "-q"]) == 0
    assert "2 requests of two chains (12 ops) on pair" in capsys.readouterr().out


@pytest.mark.slow
def test_the_end_names_planners_bound_and_files(trained):
    runs, printed = trained
    (problem,) = printed["problems"]
    rows = {row["planner"]: row for row in problem["planners"]}
    assert {"policy, greedy"} < set(rows) and any(name.startswith("policy, best found") for name in rows)
    assert all(row["step_time_ns"] >= problem["bound_ns"] > 0 for row in rows.values())
    assert all(row["room"] == 1 - problem["bound_ns"] / row["step_time_ns"] and row["idle_ns"] for row in rows.values())
    assert printed["run"] == str(runs / "unit-placer-1") and Path(printed["checkpoint"]).exists() and Path(problem["placement"]).exists()


@pytest.mark.slow
def test_the_written_placement_takes_what_it_says(trained):
    runs, printed = trained
    of = chains(2, 3, 2)
    document = json.loads(Path(printed["problems"][0]["placement"]).read_text())
    times = [row["step_time_ns"] for row in printed["problems"][0]["planners"] if row["planner"].startswith("policy")]
    assert document["predicted"]["step_time_ns"] == min(times)
    device = [document["device"][name] for name in of.graph.op_names]
    assert set(device) <= {"gpu:0", "gpu:1"} and document["provenance"]["planner"].startswith("unit-placer (")


@pytest.mark.slow
def test_metrics_of_every_update_and_the_files_are_in_mlflow(trained):
    runs, printed = trained
    client = mlflow.MlflowClient(tracking_uri=database(runs))
    run_id = printed["mlflow"]["run"]
    steps = [metric.step for metric in client.get_metric_history(run_id, "seconds")]
    assert steps == list(range(6)) and client.get_run(run_id).info.status == "FINISHED"
    kinds = {"warm_start_nats", "entropy", "best_ns", "mean_ns", "median_ns", "infeasible", "reward_std", "ops on gpu:0"}
    assert {f"two_chains.pair/{kind}" for kind in kinds} <= set(client.get_run(run_id).data.metrics)
    assert client.get_run(run_id).data.params["policy.width"] == "8"
    assert {artifact.path for artifact in client.list_artifacts(run_id)} == {"checkpoint.safetensors", "config.yaml", "placements"}


@pytest.mark.slow
def test_baselines_the_bound_and_what_the_run_is_are_in_mlflow(trained):
    runs, printed = trained
    run, (problem,) = mlflow.MlflowClient(tracking_uri=database(runs)).get_run(printed["mlflow"]["run"]), printed["problems"]
    baselines = {row["planner"]: row["step_time_ns"] for row in problem["planners"] if not row["planner"].startswith("policy")}
    logged = {name: run.data.metrics[f"two_chains.pair/baseline {name}_ns"] for name in baselines}
    assert logged == baselines and run.data.metrics["two_chains.pair/best_baseline_ns"] == min(baselines.values())
    assert run.data.metrics["two_chains.pair/bound_ns"] == problem["bound_ns"]
    assert run.data.tags["mlflow.note.content"].startswith("**unit-placer (gnn)** learns from two_chains.pair (simulated), seed 0")
    assert run.data.tags["mlflow.source.name"] and run.data.tags["mlflow.source.type"] == "LOCAL"
    assert printed["mlflow"]["page"].endswith(printed["mlflow"]["run"])


@pytest.mark.slow
def test_a_finished_run_registers_its_policy_and_no_second_time_when_resumed(trained):
    runs, printed = trained
    assert printed["mlflow"]["registered"] == {"name": "two-chains", "version": 1}
    assert cli.main(["train", "--resume", printed["run"], "-q"]) == 0
    (version,) = mlflow.MlflowClient(tracking_uri=database(runs)).search_model_versions("name = 'two-chains'")
    assert version.run_id == printed["mlflow"]["run"]


@pytest.mark.slow
def test_a_checkpoint_places_a_problem_that_it_never_saw(trained):
    of, (_, printed) = chains(3, 2, 3), trained
    plain = zero_shot.planner(printed["checkpoint"], seed=0)
    sampled = zero_shot.planner(printed["checkpoint"], seed=0, samples=16)
    times = [simulate(of, [planner(of)])[0].step_time_ns for planner in (plain, sampled)]
    assert times[1] <= times[0] and plain.encoder == "gnn" and plain.name == "unit-placer"


@pytest.mark.slow
def test_a_budget_asks_the_whole_portfolio_and_the_policy_too(files, trained, tmp_path):
    graph, cluster = files.removeprefix("--problems=[[").removesuffix("]]").split(", ")
    given = ["place", graph, "--cluster", cluster, "--checkpoint", trained[1]["checkpoint"], "-q", "-o"]
    for name, budget in (("alone", []), ("best", ["--planner", "best", "--evaluations", "300"])):
        assert cli.main([*given, str(tmp_path / name), *budget]) == 0
    planners = {name: json.loads((tmp_path / name).read_text())["provenance"]["planner"] for name in ("alone", "best")}
    assert planners["alone"] == "unit-placer" and planners["best"].startswith("best: ")


@pytest.mark.slow
def test_a_sigterm_stops_after_the_update_and_a_resumed_run_ends_like_an_uninterrupted_one(files, tmp_path):
    long = [files, *QUICK, "--training.updates=80", "--tracking=none", "--runs", str(tmp_path)]
    command = [sys.executable, "-m", "gnnplace", "train", *long, "--training.checkpoint_every=1"]
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[1])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / "unit-placer-1" / "checkpoint.safetensors"
    deadline = time.monotonic() + START_UP_S
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=LATE_S)
    assert process.returncode == 143 and complaint.count("\n") == 1 and "--resume" in complaint
    assert 0 < policy_of(checkpoint).updates_done < 82
    zero_shot.planner(str(checkpoint), seed=0)  # it is usable
    assert cli.main(["train", "--resume", str(tmp_path / "unit-placer-1"), "-q"]) == 0
    assert policy_of(checkpoint).updates_done == 82


def one_line(capsys) -> str:
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    return complaint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--training.updats=3"], "the nearest is 'training.updates'"),
        (["--config", "a", "--resume", "b"], "not allowed with"),
        (["--encoder", "lstm"], "--encoder: hierarchical has no encoder 'lstm': it has paper, gnn"),
        (["--policy", "placeto", "--encoder", "paper"], "--encoder: placeto has no encoder 'paper': it has gnn"),
        (["--policy", "lstm"], "--policy: 'lstm' is no policy"),
        (["--policy", "unit-placer", "--settings", "published"], "--settings: unit-placer has no 'published' settings; it has tuned"),
        (["--config", "a", "--policy", "unit-placer"], "--config: the file says which policy and settings, so --policy can't be given"),
        (["--resume", "nowhere", "--training.updates=3"], "--training.updates=3 can't be changed; what can: --trainer.accelerator"),
        (["--resume", "nowhere", "--encoder", "gnn"], "--encoder can't be changed"),
        (["--resume", "nowhere", "--algorithm", "ppo"], "--algorithm.kind=ppo can't be changed"),
        (["--algorithm", "foo"], "algorithm.kind: 'foo' is none of reinforce, ppo"),
        (["--algorithm", "ppo", "--algorithm.minibatchs=2"], "the nearest is 'algorithm.minibatches'"),
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments, words, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["train", *arguments])
    assert exit_.value.code == 2 and words in one_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--problems=[[nmt-99, k40-2]]"], "'nmt-99' is no graph of the corpus"),
        (["--resume", "nowhere"], "nowhere"),
        (["--trainer.acelerator=cpu"], "trainer: 'acelerator' is no flag of the Trainer; nearest is 'accelerator'"),
        (["--trainer.max_epochs=3"], "trainer.max_epochs: training.updates says how long a run is"),
        (["--trainer.devices=-5"], "trainer.devices: -5 is not between 0 (or -1, for all) and 2147483647"),
        (["--trainer.devices=9999"], "trainer.devices: 9999 processes take a core each, and this one may use "),
        (["--trainer.max_time=x"], "trainer.max_time: 'x': "),
        (["--trainer.gradient_clip_val=nan"], "trainer.gradient_clip_val: 'nan' is none of what it may be: a whole number, a number, null"),
        (["--trainer.gradient_clip_algorithm=nope"], "trainer.gradient_clip_algorithm: 'nope': "),
        (["--trainer.detect_anomaly=7"], "trainer.detect_anomaly: 7 is none of what it may be: true or false"),
        (["--trainer.num_nodes=3"], "training: groupings x placements (8 x 8) can't be divided among 3 processes"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: No such file"),
    ],
)
def test_bad_input_exits_with_4_and_leaves_nothing(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", *arguments]) == 4
    assert words in one_line(capsys)
    assert not list(tmp_path.glob("runs/*"))


def test_a_gpu_that_is_missing_is_refused_before_anything_is_written_or_traced(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cli.main(["train", "--problems=[[nowhere.py:step, cpu-2]]", "--trainer.accelerator=gpu"]) == 4
    assert one_line(capsys) == "gnnplace train: trainer.accelerator: 'gpu', and PyTorch finds no CUDA device here\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_of_a_gpu_goes_on_on_the_cpu_where_there_is_none(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder = Path(shutil.copytree(trained[0] / "unit-placer-1", tmp_path / "unit-placer-1"))
    config = (folder / "config.yaml").read_text()
    for before, after in (("gradient_clip_val:", "accelerator: gpu\n  gradient_clip_val:"), ("mlflow", "none"), ("two-chains", "null")):
        config = config.replace(before, after)
    (folder / "config.yaml").write_text(config)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert cli.main(["train", "--resume", str(folder)]) == 4
    assert "trainer.accelerator: 'gpu', and PyTorch finds no CUDA device here" in one_line(capsys)
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert cli.main(["train", "--resume", str(folder), "--trainer.accelerator", "cpu", "-q"]) == 0
    (problem,), table = trained[1]["problems"], capsys.readouterr().out
    assert "room: the most that a placement could still gain" in table and f"lower bound ({problem['bound']})" in table
    assert policy_of(folder / FILE).description["config"]["trainer"]["accelerator"] == "cpu"
    zero_shot.planner(str(folder / "checkpoint.safetensors"), seed=0)


@pytest.mark.slow
def test_a_checkpoint_is_used_and_trained_on_where_its_devices_are_missing(files, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    checkpoint = trained[1]["checkpoint"]
    assert check(chains(3, 2, 3), zero_shot.planner(checkpoint, seed=0)(chains(3, 2, 3))) is None
    started = ["--init", checkpoint, "--tracking=none", "--runs", str(tmp_path / "runs")]
    assert cli.main(["train", files, *QUICK, "--training.updates=1", *started]) == 0


def test_an_unknown_teacher_is_named(files, tmp_path, capsys):
    wrong = ["--training.warm_start.planners=[nobody]", "--tracking=none", "--runs", str(tmp_path)]
    assert cli.main(["train", files, *QUICK, *wrong]) == 4
    assert "training.warm_start.planners: 'nobody' is no planner" in one_line(capsys)


@pytest.mark.slow
def test_a_run_is_not_trained_by_two_processes(trained, capsys):
    from gnnplace.training.run.folder import open_run

    runs, _ = trained
    folder = open_run(runs / "unit-placer-1")
    assert cli.main(["train", "--resume", str(runs / "unit-placer-1")]) == 4
    assert "another process trains this run" in one_line(capsys)
    folder.close()


def test_a_short_run_trains_places_and_ends_with_its_checkpoint(files, tmp_path, capsys, monkeypatch):
    shorten_searches(monkeypatch)
    every = planners.planners  # all of them take seconds
    monkeypatch.setattr(
        planners, "planners", lambda *asked: {name: plan for name, plan in every(*asked).items() if name in ("gpu", "heft")}
    )
    few = ["--training.warm_start.updates=1", "--training.updates=2", "--training.threads=1", "--tracking=none", "-q", "--json"]
    assert cli.main(["train", files, *SMALL, *few, "--runs", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    (problem,) = printed["problems"]
    assert {"policy, greedy", "heft", "gpu"} < {row["planner"] for row in problem["planners"]} and printed["mlflow"] is None
    assert check(chains(2, 3, 2), zero_shot.planner(printed["checkpoint"])(chains(2, 3, 2))) is None
    assert json.loads(Path(problem["placement"]).read_text())["provenance"]["planner"].startswith("unit-placer (")


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again_from_its_configuration(files, trained, tmp_path):
    runs, _ = trained
    killed = tmp_path / "unit-placer-1"
    killed.mkdir()
    shutil.copy(runs / "unit-placer-1" / "config.yaml", killed)
    assert cli.main(["train", "--resume", str(killed), "-q"]) == 0
    whole, again = (policy_of(folder / FILE).weights for folder in (runs / "unit-placer-1", killed))
    assert whole.keys() == again.keys() and all(torch.equal(whole[name], again[name]) for name in whole)
