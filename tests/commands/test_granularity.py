"""`gnnplace place` and `compare` under a constraint: their output, files and refusals."""

from __future__ import annotations

import json

import pytest
from support.slow import slow

import gnnplace as gp
from gnnplace import cli
from gnnplace.commands import usage
from gnnplace.formats.placements import read_placement
from gnnplace.portfolio import planners, portfolio

IN = ("two-tower-inference", "--cluster", "k40-2", "-q")


def run(capsys, *arguments):
    try:
        status = cli.main(arguments)
    except SystemExit as left:
        status = left.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("name", ["module", "stage"])
def test_a_written_placement_says_its_granularity_and_its_modules(name, capsys, tmp_path):
    path = str(tmp_path / "p.json")
    status, out, _ = run(capsys, "place", *IN, "--granularity", name, "--planner", "metis", "--devices", "gpu:0,gpu:1", "-o", path)
    assert status == usage.DONE
    problem, document = gp.problem("two-tower-inference", "k40-2"), json.loads((tmp_path / "p.json").read_text())
    placement = read_placement(path, problem.graph, problem.cluster)
    assert document["granularity"] == gp.granularity(problem, placement) and f"in words   {document['granularity']}s: " in out
    found = gp.modules(problem.graph)
    assert list(document["modules"]) == list(found.names) and set(document["modules"].values()) <= {"gpu:0", "gpu:1"}
    assert all(
        document["device"][op] == document["modules"][found.names[module]]
        for op, module in zip(problem.graph.op_names, found.module, strict=True)
    )
    again = run(capsys, "simulate", *IN, "--placement", path, "--json")
    assert json.loads(again[1])["step_time_ns"] == document["predicted"]["step_time_ns"]
    assert document["predicted"]["bound_ns"] >= gp.lower_bound(problem)


def test_documents_without_granularity_are_read_and_split_modules_have_no_device(tmp_path):
    problem = gp.problem("two-tower-inference", "k40-2")
    gp.save(gp.place(problem, "heft"), tmp_path / "p.json", problem)
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["granularity"] == "op" and 0 < len(document["modules"]) < gp.modules(problem.graph).num_modules
    old = {key: value for key, value in document.items() if key not in ("granularity", "modules")}
    for each in (document, old):
        read = read_placement(json.dumps(each).encode(), problem.graph, problem.cluster)
        assert [problem.cluster.device_names[device] for device in read.device.tolist()] == list(document["device"].values())


@pytest.fixture
def few(monkeypatch):
    """Two planners, and no exact search."""
    every = planners.planners
    named = ("gpu", "heft")
    monkeypatch.setattr(planners, "planners", lambda *arguments: {name: every(*arguments)[name] for name in named})
    monkeypatch.setattr(portfolio, "MAX_CHOICES", -1)


@pytest.mark.parametrize("name", ["module", slow("stage")])
def test_compare_says_what_each_planner_takes_without_and_the_price(name, few, capsys):
    status, out, _ = run(capsys, "compare", *IN, "--granularity", name, "--evaluations", "40", "--json")
    found = json.loads(out)
    assert status == usage.DONE and found["constraint"]["granularity"] == name
    free = json.loads(run(capsys, "compare", *IN, "--evaluations", "40", "--json")[1])
    times = {row["planner"].partition(":")[0]: row["step_time_ns"] for row in free["planners"]}
    rows = {row["planner"].partition(":")[0]: row for row in found["planners"]}
    assert set(rows) == {*times, "stages"} and "op_step_time_ns" not in rows["stages"]
    assert {planner: rows[planner]["op_step_time_ns"] for planner in times} == times
    assert found["bound_ns"] >= free["bound_ns"] and all("op_step_time_ns" not in row for row in free["planners"])
    _, table, _ = run(capsys, "compare", *IN, "--granularity", name, "--evaluations", "40")
    line = next(line for line in table.splitlines() if line.startswith("heft"))
    assert f"{rows['heft']['step_time_ns'] / times['heft']:.3f}" in line.split()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--devices", "gpu:9"), usage.BAD_INPUT, "devices: 'gpu:9' is no device of k40-2"),
        (("--keep-whole", "nowhere"), usage.BAD_INPUT, "keep_whole: 'nowhere' is no module"),
        (("--max-cuts", "1"), usage.BAD_INPUT, "max_cuts: 1 boundaries of stages, but the granularity is 'op'"),
        (("--devices", "gpu:0,"), usage.USAGE, "'gpu:0,' is not a list of names"),
        (("--granularity", "layer"), usage.USAGE, "invalid choice: 'layer'"),
        (("--granularity", "stage", "--fusion", "default"), usage.USAGE, "--fusion: stages are made of ops that run by themselves"),
    ],
)
@pytest.mark.parametrize("command", ["place", "compare"])
def test_wrong_input_is_one_line(command, arguments, status, message, capsys):
    found, _, err = run(capsys, command, *IN, *arguments)
    assert found == status and message in err and err.count("\n") == 1


def test_a_start_has_to_keep_to_it(capsys, tmp_path):
    problem, path = gp.problem("two-tower-inference", "k40-2"), str(tmp_path / "p.json")
    gp.save(gp.place(problem, "heft"), path, problem)
    status, _, err = run(capsys, "place", *IN, "--granularity", "module", "--start", path, "--evaluations", "5")
    assert status == usage.BAD_INPUT and "start: colocation group" in err and "is split" in err
    gp.save(gp.place(problem, "heft", granularity="module"), path, problem)
    assert run(capsys, "place", *IN, "--granularity", "stage", "--start", path, "--evaluations", "5")[0] == usage.DONE


def test_what_does_not_fit_says_what_would(capsys, tmp_path):
    op = {"kind": "Op", "outputs": [{"bytes": 8}], "layer": "a", "persistent_bytes": 10**10}
    document = {"format": "gnnplace.graph", "version": 1, "name": "large", "ops": [op | {"name": name} for name in "xy"], "edges": []}
    (tmp_path / "g.json").write_text(json.dumps(document))
    asked = ("place", str(tmp_path / "g.json"), "--cluster", "k40-2", "--granularity", "module", "--accelerators-only", "-q")
    status, _, err = run(capsys, *asked)
    assert status == usage.NOTHING_FEASIBLE and err.endswith("nothing speaks against accelerators only\n") and err.count("\n") == 1


def test_whole_modules_may_be_fused(few, capsys):
    status, out, _ = run(capsys, "place", *IN, "--granularity", "module", "--fusion", "default", "--evaluations", "20", "--json")
    assert status == usage.DONE and json.loads(out)["granularity"] in ("module", "stage") and json.loads(out)["fusion"]


@pytest.mark.parametrize("planner", ["ddp", slow("best")])
def test_a_step_of_several_micro_batches_takes_another_form_of_whole_modules_on_some_devices(planner, few, capsys, tmp_path):
    path = str(tmp_path / "p.json")
    asked = ("squeezenet", "--cluster", "mixed-4", "--micro-batches", "4", "--granularity", "module", "--devices", "gpu:1,gpu:3", "-q")
    more = ("--evaluations", "20", "--report", str(tmp_path / "p.html")) if planner == "best" else ()
    status, out, _ = run(capsys, "place", *asked, "--planner", planner, *more, "-o", path)
    document = json.loads((tmp_path / "p.json").read_text())
    assert status == usage.DONE and document["granularity"] in ("module", "stage") and "whole modules" in out
    assert planner == "best" or document["replicas"] == 2
    assert set(document["device"].values()) == {"gpu:1", "gpu:3"}
    again = run(capsys, "simulate", "squeezenet", "--cluster", "mixed-4", "--placement", path, "--json", "-q")
    assert json.loads(again[1])["step_time_ns"] == document["predicted"]["step_time_ns"]
    assert document["predicted"]["bound_ns"] <= document["predicted"]["step_time_ns"]
