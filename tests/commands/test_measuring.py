"""`calibrate`, `profile`, `simulate --costs` and `measure`, one after another, on a real step on two pinned cores."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from support import torch_steps

from gnnplace import cli
from gnnplace.execution import host
from gnnplace.formats.clusters import read_cluster
from gnnplace.isolation.outcome import MeasurementError

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two pinned CPU devices need two cores")
COMPLAINT = "gnnplace measure: crash: no such luck"
WORKLOAD = f"{Path(torch_steps.__file__)}:branches"


def test_a_machine_is_calibrated_a_step_profiled_placed_and_measured(tmp_path, capsys):
    cluster, costs = str(tmp_path / "here.json"), str(tmp_path / "costs.json")
    assert cli.main(["calibrate", WORKLOAD, "-o", cluster, "-q"]) == 0
    calibrated = read_cluster(cluster)
    assert len(calibrated.devices) == len(os.sched_getaffinity(0))
    assert all(link.channel == link.src for link in calibrated.links)  # cores copy by themselves

    assert cli.main(["profile", WORKLOAD, "--cluster", cluster, "-o", costs, "--steps", "5", "-q"]) == 0
    profiled = json.loads(Path(costs).read_text())
    assert set(profiled["time_ns"]) == {"cpu"} and sum(profiled["time_ns"]["cpu"].values()) > 0
    assert profiled["links"][0]["samples"]

    capsys.readouterr()
    measured = ["measure", WORKLOAD, "--cluster", cluster, "--planner", "metis", "--protocol", "paper", "--json"]
    assert cli.main(measured) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "ok" and len(found["step_ns"]) == 5
    assert found["difference"]["largest"] <= 1e-6 and found["difference"]["reference"] == "eager PyTorch"
    simulated = found["simulated"]
    assert simulated["room"] == 1 - simulated["bound_ns"] / simulated["step_time_ns"] and simulated["bound"]
    assert set(simulated["idle_ns"]) == set(found["devices"]) and 0 < simulated["load_balance"] <= 1
    assert found["reference"]["ratio"]["low"] <= found["reference"]["ratio"]["median"] <= found["reference"]["ratio"]["high"]


def test_a_placement_is_improved_by_real_steps_and_goes_on_where_it_was_interrupted(tmp_path, capsys):
    output, ledger = tmp_path / "found.json", tmp_path / "ledger"
    searched = ["measure", WORKLOAD, "--cluster", "cpu-2", "--planner", "cpu", "--protocol", "paper", "--search", "learned"]
    kept = ["--evaluations", "6", "--ledger", str(ledger), "-o", str(output), "--json", "-q"]
    assert cli.main([*searched, *kept]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "ok"
    measured = ledger.read_text().splitlines()
    assert len(measured) == 6 and len({json.loads(line)["key"] for line in measured}) == 6
    found = json.loads(output.read_text())
    assert found["provenance"]["planner"] == "cpu, learned search of measured steps"
    ledger.write_text("\n".join(measured[:4]) + "\n")  # interrupted
    assert cli.main([*searched, *kept]) == 0
    assert ledger.read_text().splitlines()[:4] == measured[:4] and len(ledger.read_text().splitlines()) == 6


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--evaluations", "4"], "--evaluations: without --search nothing is searched"),
        (["--ledger", "x"], "--ledger: without --search nothing is searched"),
        (["--search", "learned", "--ledger", "nowhere/x"], "nowhere/x: there is no such folder"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused_before_anything_is_loaded(wrong, says, capsys):
    with suppress(SystemExit):
        assert cli.main(["measure", "no.py:step", "--cluster", "cpu-2", "--planner", "cpu", *wrong]) != 0
    complaint = capsys.readouterr().err
    assert says in complaint and complaint.count("\n") == 1


def test_a_cluster_says_itself_who_copies_what_is_received(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["calibrate", WORKLOAD, "--cluster", "cpu-2", "--receive", "-o", str(tmp_path / "here.json")])
    complaint = capsys.readouterr().err
    assert exit_.value.code == 2 and "--receive" in complaint and complaint.count("\n") == 1


def test_no_steps_are_refused_before_anything_is_measured(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["profile", WORKLOAD, "--cluster", "cpu-2", "-o", str(tmp_path / "costs.json"), "--steps", "0"])
    complaint = capsys.readouterr().err
    assert exit_.value.code == 2 and "--steps: 0 is too few" in complaint and complaint.count("\n") == 1


LATER = """
from torch import nn, zeros
from gnnplace.frontends.tensorflow.step import TensorFlowStep
from gnnplace.frontends.torch.step import TorchStep
def loss(module, x):
    return module(x[:, :2]).sum()

def shapes():
    return TorchStep(nn.Linear(3, 3), loss, (zeros(2, 3),), "sgd")

def values():
    a, b = [1]

built = lambda: TensorFlowStep("late", late)

def late():
    return {}["x"]
"""


def test_what_is_no_workload_is_said_in_a_line(tmp_path, monkeypatch, capsys):
    def complaint(workload: str) -> str:
        status = cli.main(["measure", workload, "--cluster", "cpu-2", "--planner", "expert"])
        assert status == 4
        return capsys.readouterr().err

    (tmp_path / "other.py").write_text("def step():\n    return 7\n")
    assert f"{tmp_path}/none.py: no such file" in complaint(f"{tmp_path}/none.py:step")
    assert "has no function 'train'" in complaint(f"{tmp_path}/other.py:train")
    assert "returned a int" in complaint(f"{tmp_path}/other.py:step")
    (tmp_path / "wrong.py").write_text("x = 1\ndef step(:\n")
    assert f"{tmp_path}/wrong.py, line 2: invalid syntax" in complaint(f"{tmp_path}/wrong.py:step")
    (tmp_path / "lacks.py").write_text("x = 1\nimport nothing_such\n")
    (tmp_path / "deeper.py").write_text("import lacks\n")
    assert f"{tmp_path}/lacks.py, line 2: No module named 'nothing_such'" in complaint(f"{tmp_path}/deeper.py:step")
    (tmp_path / "fails.py").write_text(
        "import torch\n\ndef step():\n    return torch.empty(2).view(3).misspelt\n\nmore = lambda: misspelt\n"
    )
    assert f"step: can't be built: {tmp_path}/fails.py, line 4: RuntimeError: shape '[3]'" in complaint(f"{tmp_path}/fails.py:step")
    assert f"{tmp_path}/fails.py, line 6: NameError: name 'misspelt' is not defined" in complaint(f"{tmp_path}/fails.py:more")
    (tmp_path / "inner.py").write_text("from torch import nn, zeros\n\ndef step():\n    nn.Linear(2, 3)(zeros(1, 5))\n")
    assert f"{tmp_path}/inner.py, line 4: RuntimeError: mat1" in complaint(f"{tmp_path}/inner.py:step")
    (tmp_path / "later.py").write_text(LATER)
    traced = complaint(f"{tmp_path}/later.py:shapes")
    assert "later.py:shapes: can't be built: module: RuntimeError: " in traced and f"at {tmp_path}/later.py:6 (return" in traced
    assert f"{tmp_path}/later.py, line 12: ValueError: not enough values" in complaint(f"{tmp_path}/later.py:values")
    assert f"{tmp_path}/later.py, line 17: KeyError: 'x'" in complaint(f"{tmp_path}/later.py:built")
    assert "no-such-graph" in complaint("no-such-graph")
    monkeypatch.chdir(tmp_path)
    assert f"wrong: can't be imported: {tmp_path}/wrong.py, line 2" in complaint("wrong:step")
    assert "no_such: can't be imported: No module named 'no_such'" in complaint("no_such:step")


def test_a_workload_may_have_the_name_of_a_module(tmp_path, capsys):
    (tmp_path / "profile.py").write_text(f"from support.{Path(torch_steps.__file__).stem} import branches\n")
    measured = ["measure", f"{tmp_path}/profile.py:branches", "--cluster", "cpu-2", "--planner", "expert", "--protocol", "paper"]
    assert cli.main(measured) == 0
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["step time, measured"].endswith("5 steps") and "a placement could still gain" in lines["bound, simulated"]
    assert lines["load balance, simulated"].endswith(" %") and ", idle " in lines["cpu:1"]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_failure_of_several_ranks_is_said_once(rank, monkeypatch, capsys):
    def fails(*arguments: object, **named: object) -> None:
        raise MeasurementError("crash", "no such luck")

    monkeypatch.setattr(host, "Host", fails)
    monkeypatch.setenv("RANK", rank)
    assert cli.main(["measure", WORKLOAD, "--cluster", "cpu-2", "--planner", "expert", "--json"]) == 5
    said, error = capsys.readouterr()
    assert (json.loads(said)["reason"] == "no such luck" and not error) if rank == "0" else (said, error) == ("", f"{COMPLAINT}\n")
