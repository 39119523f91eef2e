"""`--report` and `gnnplace report`, as users meet them."""

import json
import re

import pytest
from support.fork_on_pair import IN, run

from gnnplace.config import files
from gnnplace.report import page
from gnnplace.training.run.curves import methods, read_run

PLACED = (*IN, "--placement", "placement.json")
TRAINED = [
    "--policy=unit-placer", "--policy.units=ops", "--policy.width=8", "--policy.rounds=1", "--policy.hidden=8", "--training.placements=4",
    "--training.warm_start.updates=0", "--training.updates=3", "--problems=[[graph.json, cluster.json]]", "--runs=runs", "-q",
]  # fmt: skip


def data(path):
    """What a page draws."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


@pytest.mark.parametrize("command", [["place", *IN, "--planner=heft"], ["explain", *PLACED], ["compare", *IN, "--evaluations=1"]])
def test_a_report_that_can_not_be_is_one_line_before_the_work(folder, capsys, monkeypatch, command):
    assert run(capsys, *command, "--report", "out.pdf") == (
        4, "", f"gnnplace {command[0]}: out.pdf: a report is HTML; the ending is .html\n",
    )  # fmt: skip
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    status, out, err = run(capsys, *command, "--report", "out.html")
    assert (status, out) == (4, "") and err.endswith('needs the package plotly: pip install "gnnplace[report]"\n')


@pytest.mark.slow
def test_reports_show_the_placement_its_planners_and_where_it_comes_from(folder, capsys):
    pytest.importorskip("plotly", reason="needs gnnplace[report]")
    assert run(capsys, "explain", *PLACED, "--report", "explain.html")[0] == 0
    assert data(folder / "explain.html")["timeline"]["step_ns"] == 50
    assert "gnnplace explain graph.json --cluster cluster.json --placement placement.json --report explain.html" in (
        (folder / "explain.html").read_text()
    )
    assert run(capsys, "place", *IN, "--planner=heft", "--seed=7", "--report", "place.html", "-q")[0] == 0
    assert "<td>heft</td>" in (folder / "place.html").read_text() and "seed 7" in (folder / "place.html").read_text()
    status, out, _ = run(capsys, "compare", *IN, "--evaluations=1", "--json", "--report", "compare.html", "-q")
    rows = json.loads(out)["planners"]
    assert status == 0 and data(folder / "compare.html")["timeline"]["step_ns"] == rows[0]["step_time_ns"]
    assert all(f"<td>{row['planner']}</td>" in (folder / "compare.html").read_text() for row in rows)


@pytest.mark.slow
def test_runs_that_differ_in_their_seed_are_one_method(folder, capsys):
    pytest.importorskip("plotly", reason="needs gnnplace[report]")
    for options in (["--seed=0"], ["--seed=1"], ["--training.placements=5"]):
        assert run(capsys, "train", *TRAINED, *options)[0] == 0
    runs = [folder / "runs" / f"unit-placer-{number}" for number in (1, 2, 3)]
    found = methods([read_run(path) for path in runs])
    assert {name: [run.path for run in members] for name, members in found.items()} == {
        "unit-placer (gnn), training.placements 4": runs[:2], "unit-placer (gnn), training.placements 5": runs[2:],
    }  # fmt: skip
    assert all(sorted(run.curves["fork.pair/mean_ns"]) == [0, 1, 2] for members in found.values() for run in members)
    assert run(capsys, "report", *map(str, runs), "-o", "runs.html")[0] == 0
    figures = data(folder / "runs.html")["figures"]
    assert set(figures) == {"curves0", "beside0"} and {"bound"} < {trace.get("name") for trace in figures["curves0"]["data"]}
    policies, heuristics = figures["beside0"]["data"]
    best = {name: [run.best_ns["fork.pair"] / 1e6 for run in members] for name, members in found.items()}
    assert dict(zip(policies["y"], policies["x"], strict=True)) == pytest.approx(
        {name: (times[0] * times[-1]) ** 0.5 for name, times in best.items()}
    )
    assert "heft" in heuristics["y"] and "annealing" not in heuristics["y"]


def test_what_is_no_tracked_run_is_one_line(folder, capsys, monkeypatch):
    monkeypatch.setattr(page, "find_spec", lambda name: True)  # plotly may be missing: it is not needed yet
    expected = "gnnplace report: nowhere: no folder of a run: there is no config.yaml\n"
    assert run(capsys, "report", "nowhere", "-o", "out.html") == (4, "", expected)
    (folder / "untracked").mkdir()
    (folder / "untracked" / "config.yaml").write_text(files.to_yaml(files.read_settings("unit-placer", None, [])))
    status, out, err = run(capsys, "report", "untracked", "-o", "out.html")
    assert (status, out) == (4, "") and err.startswith("gnnplace report: untracked: has no learning curves")
    assert not (folder / "out.html").exists()
