"""`gnnplace compare`: `best` beside all other planners, and a word on those that are slower than one device."""

import json
import re
from pathlib import Path

import pytest
from support.fork_on_pair import IN
from support.slow import slow

from gnnplace import cli
from gnnplace.baselines.cp_sat import exact
from gnnplace.portfolio import planners, portfolio

OP = {"kind": "MatMul", "outputs": [{"bytes": 400}], "time_ns": {"cpu": 9000, "gpu": 1000}, "persistent_bytes": 10}
DEVICE = {"memory_bytes": 10**9, "flops_per_s": 10**12, "memory_bytes_per_s": 10**12}


@pytest.fixture
def posed(tmp_path, monkeypatch):
    """Six chains of four ops that all meet, on a CPU and two GPUs, one of them half as fast: what to name it by."""
    ops = [OP | {"name": f"c{chain}/{i}", "time_ns": {"cpu": 9000, "gpu": 1000, "gpu:1": 2000}} for chain in range(6) for i in range(4)]
    edges = [[4 * chain + i, 0, 4 * chain + i + 1] for chain in range(6) for i in range(3)]
    edges += [[4 * chain, 0, 4 * other + 2] for chain in range(6) for other in range(6) if chain != other]
    kinds = {"cpu:0": "cpu", "gpu:0": "gpu", "gpu:1": "gpu"}
    links = [{"src": a, "dst": b, "bandwidth_bytes_per_s": 10**9} for a in kinds for b in kinds if a != b]
    cluster = {"name": "trio", "devices": [DEVICE | {"name": name, "kind": kind} for name, kind in kinds.items()], "links": links}
    documents = {"graph": {"name": "meeting", "ops": ops, "edges": edges}, "cluster": cluster}
    for what, document in documents.items():
        (tmp_path / f"{what}.json").write_text(json.dumps({"format": f"gnnplace.{what}", "version": 1} | document))
    monkeypatch.chdir(tmp_path)
    return "graph.json", "--cluster", "cluster.json"


def compare(capsys, *arguments):
    status = cli.main(["compare", *arguments, "-q"])
    assert status == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("schedule", "evaluations"),
    [("critical-path", "1"), slow("fifo", "1"), slow("given", "1"), *(slow(name, "300") for name in ("critical-path", "fifo", "given"))],
)
def test_best_is_never_slower_than_any_other_row(posed, capsys, schedule, evaluations):
    first, *rows = json.loads(compare(capsys, *posed, "--schedule", schedule, "--evaluations", evaluations, "--json"))["planners"]
    assert first["planner"].startswith("best: ") and not any(row["planner"].startswith("best") for row in rows)
    assert first["infeasible"] is None and first["step_time_ns"] <= min(row["step_time_ns"] for row in rows)
    names = set(planners.BASELINES) - set(planners.missing())
    assert {row["planner"] for row in rows} == names
    assert {row["schedule"] for row in (first, *rows)} <= ({"given", "critical-path"} if schedule == "given" else {schedule})


@pytest.mark.slow
def test_best_begins_with_what_the_other_rows_found_and_plans_nothing_again(posed, capsys, monkeypatch):
    search, planner, inside = portfolio.portfolio, planners.planner, []

    def watched_portfolio(*arguments):
        inside.append("portfolio")
        return search(*arguments)

    def watched_planner(name, *arguments):
        inside.append(name)
        return planner(name, *arguments)

    monkeypatch.setattr(portfolio, "portfolio", watched_portfolio)
    monkeypatch.setattr(planners, "planner", watched_planner)
    first, second, *_ = json.loads(compare(capsys, *posed, "--evaluations", "1", "--json"))["planners"]
    assert inside.count("portfolio") == 1 and inside[-1] == "portfolio" and "heft" in inside
    assert first["planner"] == f"best: {second['planner']}"


@pytest.mark.slow
def test_nothing_feasible_is_said_of_best_too(posed, capsys, tmp_path):
    cluster = json.loads((tmp_path / "cluster.json").read_text())
    small = [device | {"memory_bytes": 20} for device in cluster["devices"]]
    (tmp_path / "cluster.json").write_text(json.dumps(cluster | {"devices": small}))
    assert cli.main(["compare", *posed, "-q", "--json", "--evaluations", "5"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert all(row["infeasible"].startswith("memory") and row["room"] is None for row in found["planners"])
    assert found["slower_than_one_device"] == {}
    assert cli.main(["compare", *posed, "-q", "--evaluations", "5"]) == 3
    said = capsys.readouterr().out
    assert "\ninfeasible:\n" in said and all(f"\n  {row['planner']}: {row['infeasible']}\n" in said for row in found["planners"][1:])


@pytest.mark.slow
def test_the_table_names_the_bound_and_explains_who_is_slower_than_one_device(posed, capsys):
    found = json.loads(compare(capsys, *posed, "--evaluations", "5", "--json"))
    lines = compare(capsys, *posed, "--evaluations", "5").splitlines()
    assert max(map(len, lines[: lines.index("")])) <= 140
    assert any(re.match(rf"lower bound \({found['bound']}\) +0\.\d\d\d ", line) for line in lines)
    single = min(row["step_time_ns"] for row in found["planners"] if row["planner"] in ("cpu", "gpu"))
    slower = [row["planner"] for row in found["planners"] if row["step_time_ns"] > single]
    assert list(found["slower_than_one_device"]) == slower and "cpu" in slower
    explained = lines[lines.index("slower than the best single device:") + 1 :]
    assert explained[: len(slower)] == [f"  {name}: {planners.BASELINES[name].slower}" for name in slower]


def test_who_is_slower_than_one_device():
    times = {"cpu": 9, "gpu": 5, "expert": 5, "metis": 6, "new": 7, "heft": 4, "random": None}
    assert planners.slower_than_one_device(times) == {
        "cpu": planners.BASELINES["cpu"].slower,
        "metis": planners.BASELINES["metis"].slower,
        "new": "Not explained yet.",
    }
    assert planners.slower_than_one_device(times | {"gpu": None}) == {}
    assert planners.slower_than_one_device({"metis": 6, "cpu": None, "gpu": None}) == {}


@pytest.fixture
def dying(monkeypatch):
    """CP-SAT's process ends at its first request."""
    exact._process.cache_clear()
    monkeypatch.setattr(exact.python, "command", lambda *arguments: ["sh", "-c", "kill -SEGV $$"])
    yield
    exact._process.cache_clear()


def test_a_planner_whose_process_dies_is_infeasible_and_the_others_go_on(folder, dying, capfd):
    status = cli.main(["compare", *IN, "--evaluations", "9", "--json"])
    out, err = capfd.readouterr()
    rows = {row["planner"]: row for row in json.loads(out)["planners"]}
    assert status == 0 and rows["exact"]["infeasible"] == "the process of CP-SAT was killed by SIGSEGV"
    assert rows["exact"]["step_time_ns"] is None and rows["heft"]["step_time_ns"] == 50
    assert "exact: the process of CP-SAT was killed by SIGSEGV, planned in" in err and "Traceback" not in err


def test_a_search_whose_process_dies_is_said_and_goes_on(folder, dying, capfd):
    assert cli.main(["place", *IN, "--evaluations", "9", "--search", "plain"]) == 0
    assert "exact: the process of CP-SAT was killed by SIGSEGV; it goes on from: 0.000 ms" in capfd.readouterr().err
    assert cli.main(["place", *IN, "--planner", "exact"]) == 3
    assert capfd.readouterr().err.endswith("nor a proof that there is nothing; exact: the process of CP-SAT was killed by SIGSEGV\n")


@pytest.mark.slow
def test_several_checkpoints_have_a_row_each(posed, capsys, monkeypatch):
    every = planners.planners
    monkeypatch.setattr(planners, "planners", lambda *arguments: {"heft": every(*arguments)["heft"]})  # the others take seconds
    folder = Path(__file__).parents[1] / "golden" / "checkpoints"
    paths = [str(folder / f"{name}.safetensors") for name in ("hierarchical-paper", "unit-placer")]
    Path("copy.safetensors").write_bytes(Path(paths[0]).read_bytes())
    words = [*posed, "--evaluations", "1", "--json", "--checkpoint", *paths, "copy.safetensors"]
    rows = {row["planner"]: row["step_time_ns"] for row in json.loads(compare(capsys, *words))["planners"]}
    twice = [rows[f"hierarchical (paper), zero-shot, {path}"] for path in (paths[0], "copy.safetensors")]
    assert twice[0] == twice[1] and "unit-placer (gnn), zero-shot" in rows and len(rows) == 5


@pytest.mark.slow
def test_exact_is_not_proved_where_neither_its_search_nor_the_bound_says_so(posed, capsys, monkeypatch):
    every = planners.planners
    monkeypatch.setattr(planners, "planners", lambda *arguments: {name: every(*arguments)[name] for name in ("heft", "exact")})
    monkeypatch.setattr(exact, "solve", lambda *arguments, **more: exact.Solution(None, None, 1, proved=False))
    table = compare(capsys, *posed, "--evaluations", "1")
    rows = {row["planner"]: row["proved"] for row in json.loads(compare(capsys, *posed, "--evaluations", "1", "--json"))["planners"]}
    assert "exact, not proved" in table and "heft, not proved" not in table and not rows["exact"]


@pytest.mark.slow
def test_exact_is_proved_where_its_search_was_complete(tmp_path, capsys, monkeypatch):
    """Three equal ops on two equal GPUs take two of them; the load bound says one and a half."""
    monkeypatch.chdir(tmp_path)
    ops = [{"name": f"op {number}", "kind": "MatMul", "outputs": [], "time_ns": {"gpu": 1000}} for number in range(3)]
    devices = [DEVICE | {"name": f"gpu:{number}", "kind": "gpu"} for number in range(2)]
    links = [{"src": f"gpu:{a}", "dst": f"gpu:{1 - a}", "bandwidth_bytes_per_s": 10**9} for a in range(2)]
    cluster = {"name": "pair", "devices": devices, "links": links}
    for what, document in {"graph": {"name": "three", "ops": ops, "edges": []}, "cluster": cluster}.items():
        Path(f"{what}.json").write_text(json.dumps({"format": f"gnnplace.{what}", "version": 1} | document))
    words = ("graph.json", "--cluster", "cluster.json", "--evaluations", "50")
    found = json.loads(compare(capsys, *words, "--json"))
    rows = {row["planner"]: (row["step_time_ns"], row["proved"]) for row in found["planners"]}
    assert rows["exact"] == (2000, True) and rows["gpu"] == (3000, False) and "not proved" not in compare(capsys, *words)
