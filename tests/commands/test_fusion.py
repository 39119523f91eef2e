"""Fused ops in commands: `simulate` of a placement that names them, and `place` and `compare` of ops fused by default."""

import json

import pytest
from support.fork_on_pair import run
from support.slow import slow

from gnnplace.portfolio import planners, portfolio

OPS = [("x", "input", 0), ("conv", "conv", 9000), ("bias", "elementwise", 100), ("relu", "activation", 100), ("fc", "matmul", 5000)]
GRAPH = {
    "format": "gnnplace.graph", "version": 1, "name": "convolution",
    "ops": [
        {"name": name, "kind": name, "canonical_kind": kind, "flops": flops, "outputs": [{"bytes": 1000}], "phase": "forward"}
        for name, kind, flops in OPS
    ],
    "edges": [[i, 0, i + 1] for i in range(4)],
}  # fmt: skip
GPU = {"kind": "gpu", "memory_bytes": 5000, "flops_per_s": 10**9, "memory_bytes_per_s": 10**9, "launch_ns": 500}
CLUSTER = {"format": "gnnplace.cluster", "version": 1, "name": "one", "devices": [GPU | {"name": "gpu:0"}], "links": []}
FUSED = [["conv", "bias", "relu"]]
STEP_NS = (500 + 1000) + (500 + 9200) + (500 + 5000)  # x; 9,200 flops in one launch; fc


@pytest.fixture
def here(tmp_path, monkeypatch):
    placement = {"format": "gnnplace.placement", "version": 1, "device": {name: "gpu:0" for name, _, _ in OPS}, "fusion": FUSED}
    for name, document in (("graph", GRAPH), ("cluster", CLUSTER), ("placement", placement)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    return tmp_path


IN = ("graph.json", "--cluster", "cluster.json")


def test_simulate_reads_what_is_fused(here, capsys):
    status, out, _ = run(capsys, "simulate", *IN, "--placement", "placement.json", "--json")
    found = json.loads(out)
    assert status == 0 and found["step_time_ns"] == STEP_NS and found["infeasible"] is None
    assert found["bound_ns"] <= STEP_NS and found["room"] >= 0
    status, out, _ = run(capsys, "simulate", *IN, "--placement", "placement.json", "--picture", "step.svg")
    assert status == 0 and "5 ops fused to 3" in out and (here / "step.svg").exists()


def test_what_cannot_be_fused_is_a_result(here, capsys):
    document = json.loads((here / "placement.json").read_text()) | {"fusion": [["conv", "bias", "relu", "fc"]]}
    (here / "placement.json").write_text(json.dumps(document))
    status, out, _ = run(capsys, "simulate", *IN, "--placement", "placement.json", "--json")
    found = json.loads(out)
    assert status == 0 and found["step_time_ns"] is None and "'conv' and 'fc' can't be fused" in found["infeasible"]


@pytest.mark.parametrize("planner", [("--planner", "gpu"), slow(("--evaluations", "2"))])
def test_place_writes_what_frameworks_fuse_and_simulate_says_the_same(here, capsys, planner):
    status, out, _ = run(capsys, "place", *IN, "--fusion", "default", *planner, "-o", "found.json", "-q")
    document = json.loads((here / "found.json").read_text())
    assert status == 0 and "step time" in out and document["fusion"] == FUSED and set(document["device"]) == {name for name, _, _ in OPS}
    assert document["predicted"]["step_time_ns"] == STEP_NS
    status, out, _ = run(capsys, "simulate", *IN, "--placement", "found.json", "--json")
    assert status == 0 and json.loads(out) == document["predicted"]
    status, out, _ = run(capsys, "place", *IN, "--planner", "gpu", "--json", "-q")
    assert "fusion" not in json.loads(out) and json.loads(out)["predicted"]["step_time_ns"] > STEP_NS


def test_compare_has_a_row_of_fused_ops_for_every_planner(here, capsys, monkeypatch):
    every = planners.planners
    monkeypatch.setattr(planners, "planners", lambda *asked: {name: every(*asked)[name] for name in ("gpu", "heft")})  # others take seconds
    monkeypatch.setattr(portfolio, "MAX_CHOICES", -1)  # no exact search either
    status, out, _ = run(capsys, "compare", *IN, "--fusion", "default", "--evaluations", "2", "--json", "-q")
    found = json.loads(out)
    times = {row["planner"]: row["step_time_ns"] for row in found["planners"]}
    fused = {name.removesuffix(", fused") for name in times if name.endswith(", fused") and not name.startswith("best")}
    assert status == 0 and fused == {"gpu", "heft"} and found["planners"][0]["planner"].endswith(", fused")
    assert all(times[f"{name}, fused"] == STEP_NS < times[name] for name in fused) and len(times) == 2 * len(fused) + 2  # and `best` twice
    assert found["fused_bound_ns"] <= STEP_NS < found["bound_ns"] and not any("fused" in name for name in found["slower_than_one_device"])
    status, out, _ = run(capsys, "compare", *IN, "--fusion", "default", "--evaluations", "2", "-q")
    assert status == 0 and "lower bound (" in out and "of every fusion (" in out and "gpu, fused" in out


def test_searches_take_no_fused_start(here, capsys):
    status, _, err = run(capsys, "place", *IN, "--start", "placement.json", "-q")
    assert status == 4 and "searches place ops that run by themselves" in err and err.count("\n") == 1
    status, _, err = run(capsys, "place", *IN, "--start", "placement.json", "--fusion", "default", "-q")
    assert status == 2 and "--start" in err
