"""`gnnplace judge`: an assignment under its program: step, peaks, a refusal with names, a better one; several make a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.fork_on_pair import run

import gnnplace as gp
from gnnplace.exports.assignments import read_assignment

NET = """
import torch
from torch import nn
import gnnplace as gp

class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(100, 64), nn.Sequential(*(Block() for _ in range(4))), nn.Linear(64, 100)
    def forward(self, ids):
        return self.head(self.blocks(self.embed(ids)))

def step():
    with torch.device("meta"):
        return gp.TorchStep(Net(), lambda net, x: net(x).square().mean(), (torch.zeros(256, 32, dtype=torch.long),))
"""
CLUSTER = "2x rtx-3070, pcie4"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    maps = {
        "split.json": {"embed": 0, "blocks.0": 1, "blocks.1": 0, "blocks.2": 1, "blocks.3": 0, "head": 1},
        "torn.json": {"embed": 0, "blocks.0.norm": 0, "blocks.0.up": 1, "blocks.0.down": 1, "blocks.1": 1, "blocks.2": 1, "blocks.3": 1,
                      "head": 1},
    }  # fmt: skip
    for name, document in maps.items():
        (tmp_path / name).write_text(json.dumps(document))
    return tmp_path


def judge(capsys, *more: str):
    return run(capsys, "judge", "net.py:step", "--cluster", CLUSTER, "--from", "accelerate", "-q", *more)


def test_a_map_is_told_its_step_its_peaks_and_the_best_change(folder: Path, capsys) -> None:
    status, out, err = judge(capsys, "--map", "split.json", "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    (row,) = document["maps"]
    assert row["refused"] is None and row["step_time_ns"] > document["bound_ns"] > 0 and row["change"]["step_time_ns"] < row["step_time_ns"]
    assert row["peak_memory_bytes"]["gpu:0"] > 0 and row["waits_for"].startswith("gpu:")
    problem = gp.problem("net.py:step", cluster=CLUSTER, runtime="accelerate")
    assert gp.simulate(problem, read_assignment("split.json", problem, "accelerate")).step_time_ns == row["step_time_ns"]


def test_what_the_program_refuses_is_told_with_the_names_and_several_maps_make_a_table(folder: Path, capsys) -> None:
    status, out, _ = judge(capsys, "--map", "split.json", "torn.json")
    assert status == 0 and "run by accelerate" in out
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("split.json ", "torn.json "))] == ["split.json", "torn.json"]
    assert "torn.json: accelerate: the code of blocks.0 gets tensors of two devices" in out


def test_a_better_map_of_the_same_kind_is_found_and_written(folder: Path, capsys) -> None:
    status, out, _ = judge(capsys, "--map", "split.json", "--improve", "--evaluations", "30", "-o", "better.json")
    assert status == 0 and "less than split.json" in out and "written to better.json" in out
    again = json.loads(judge(capsys, "--map", "split.json", "better.json", "--json")[1])["maps"]
    assert again[1]["refused"] is None and again[1]["step_time_ns"] < 0.98 * again[0]["step_time_ns"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--map", "none.json"), 4, "none.json"),
        (("--map", "split.json", "-o", "x.json"), 2, "say --improve, too"),
        (("--map", "split.json", "--for", "openvino"), 2, "--for: openvino does not run what is accelerate's"),
        (("--map", "net.py"), 4, "net.py: "),
    ],
)
def test_bad_arguments_are_one_line(arguments, status, words, folder: Path, capsys) -> None:
    code, out, err = judge(capsys, *arguments)
    assert (code, out) == (status, "") and words in err and len(err.splitlines()) == 1


def test_a_graph_of_the_corpus_is_judged_by_device_strings(tmp_path: Path, capsys) -> None:
    problem = gp.problem("nmt-2", cluster="k40-2")
    gp.export(problem, gp.place(problem, "heft"), "tensorflow", tmp_path / "placed")
    status, out, _ = run(
        capsys,
        "judge",
        "nmt-2",
        "--cluster",
        "k40-2",
        "--from",
        "tensorflow",
        "--map",
        str(tmp_path / "placed" / "devices.json"),
        "-q",
        "--json",
    )
    assert status == 0 and json.loads(out)["maps"][0]["step_time_ns"] == gp.place(problem, "heft").step.step_time_ns
