"""`gnnplace place`, and the planners that it shares with `compare`."""

import json
from operator import attrgetter

import pytest
from support.fork_on_pair import CLUSTER, GRAPH, IN, run

from gnnplace.formats.graphs import read_graph
from gnnplace.portfolio import comparison, planners, portfolio


@pytest.mark.slow
def test_compare_lists_every_planner_fastest_feasible_first(folder, capsys):
    status, out, err = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--json")
    found = json.loads(out)
    assert status == 0 and (found["graph"], found["cluster"], found["ops"], found["schedule"]) == ("fork", "pair", 3, "critical-path")
    rows = found["planners"]
    keys = {
        "planner", "step_time_ns", "infeasible", "peak_memory_bytes", "planning_ns", "fifo_step_time_ns", "busy_ns", "transferred_bytes",
        "transfers", "schedule", "room", "load_balance", "communication_share", "idle_ns", "proved",
    }  # fmt: skip
    assert len(rows) >= 2 and all(set(row) == keys for row in rows)
    times = [row["step_time_ns"] for row in rows if row["infeasible"] is None]
    assert times == sorted(times) and times[0] >= found["bound_ns"]
    assert [row["infeasible"] is None for row in rows] == sorted((row["infeasible"] is None for row in rows), reverse=True)
    assert all(any(line.startswith(f"{row['planner']}: ") for line in err.splitlines()) for row in rows[1:])  # progress
    assert [row["room"] for row in rows if row["infeasible"] is None] == [1 - found["bound_ns"] / time for time in times]


@pytest.mark.slow
def test_quiet_is_quiet_and_fifo_is_fifo(folder, capsys):
    status, out, err = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--json", "-q", "--schedule", "fifo")
    assert (status, err) == (0, "")
    assert all(row["step_time_ns"] == row["fifo_step_time_ns"] for row in json.loads(out)["planners"])


def test_a_written_placement_simulates_as_predicted(folder, capsys):
    status, out, _ = run(capsys, "place", "graph.json", "--cluster", "cluster.json", "-o", "found.json", "--seed", "3", "-q")
    assert status == 0 and "written to found.json" in out
    document = json.loads((folder / "found.json").read_text())
    assert document["provenance"]["seed"] == 3 and document["provenance"]["tool"].startswith("gnnplace ")
    assert document["graph"]["sha256"] == read_graph(folder / "graph.json").sha256
    status, out, _ = run(capsys, "simulate", "graph.json", "--cluster", "cluster.json", "--placement", "found.json", "--json")
    assert status == 0 and json.loads(out) == document["predicted"]


@pytest.mark.slow
def test_one_planner_may_be_named(folder, capsys):
    _, out, _ = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--json", "-q")
    name = json.loads(out)["planners"][-1]["planner"]
    status, _, _ = run(capsys, "place", "graph.json", "--cluster", "cluster.json", "-o", "found.json", "--planner", name, "-q")
    assert status == 0 and json.loads((folder / "found.json").read_text())["provenance"]["planner"] == name
    status, _, err = run(capsys, "place", "graph.json", "--cluster", "cluster.json", "-o", "found.json", "--planner", "heff")
    assert status == 2 and "'heff' is no planner; nearest is 'heft'" in err and err.count("\n") == 1


@pytest.mark.slow
def test_best_is_never_worse_than_any_planner_names_its_winner_and_is_the_same_again(folder, capsys):
    _, out, _ = run(capsys, "compare", *IN, "--json", "-q")
    fastest = json.loads(out)["planners"][0]["step_time_ns"]
    found = []
    for output in ("one.json", "two.json"):
        assert run(capsys, "place", *IN, "-o", output, "--evaluations", "900", "-q")[0] == 0
        found.append(json.loads((folder / output).read_text()))
        assert found[-1]["provenance"].pop("wall_ns") > 0
    assert found[0] == found[1] and found[0]["provenance"]["planner"].startswith("best: ")
    assert found[0]["predicted"]["step_time_ns"] <= fastest
    status, shown, said = run(capsys, "place", *IN, "-o", "three.json", "--budget", "0.2s")
    assert status == 0 and "found by   best: " in shown
    assert len(set(told := said.splitlines())) == len(told)  # progress says nothing twice


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), "given"), (("--planner", "best"), "given"), (("--schedule", "fifo"), "fifo"), (("--planner", "heft"), "critical-path")],
)
def test_best_orders_ops_by_itself_unless_a_schedule_is_named(folder, capsys, monkeypatch, options, expected):
    asked = []

    def watching(function, schedule):
        return lambda *given: asked.append(schedule(given[3])) or function(*given)

    monkeypatch.setattr(portfolio, "portfolio", watching(portfolio.portfolio, attrgetter("schedule")))
    monkeypatch.setattr(planners, "planners", watching(planners.planners, str))
    assert run(capsys, "place", *IN, "-o", "found.json", "-q", *options)[0] == 0
    assert asked[0] == expected


@pytest.mark.slow
def test_without_scotch_it_is_said_how_to_get_it(folder, capsys, monkeypatch):
    monkeypatch.setattr(planners, "available", lambda: False)
    _, out, _ = run(capsys, "compare", *IN, "--json", "-q")
    document = json.loads(out)
    assert set(document["missing"]) == {"scotch", "min-cut"} and not {row["planner"] for row in document["planners"]} & {
        "scotch",
        "min-cut",
    }
    assert run(capsys, "compare", *IN, "-q")[1].count("apt-get install libscotch-7.0") == 2
    status, _, err = run(capsys, "place", *IN, "-o", "found.json", "--planner", "scotch")
    assert status == 2 and "apt-get install libscotch-7.0" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [({"memory_bytes": 10}, "no placement fits: op 'left' needs 1,050 bytes on one device"), ({}, "nothing feasible found, nor a proof")],
    ids=["proved", "not proved"],
)
def test_where_nothing_is_feasible_the_status_is_3_and_nothing_is_written(folder, capsys, change, said):
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"devices": [device | change for device in CLUSTER["devices"]]}))
    if not change:  # all three would fit two devices by their sum, and no two fit one
        (folder / "graph.json").write_text(json.dumps(GRAPH | {"ops": [op | {"persistent_bytes": 2600} for op in GRAPH["ops"]]}))
    status, out, err = run(capsys, "place", *IN, "-o", "found.json")
    assert (status, out) == (3, "") and said in err and not (folder / "found.json").exists()
    assert (", infeasible\n" in err) == (not change)  # progress says so of the best so far; after a proof there is none
    status, out, _ = run(capsys, "compare", *IN, "--json", "-q")
    assert status == 3 and all(row["infeasible"] for row in json.loads(out)["planners"])


def test_an_interrupt_has_its_status(folder, capsys, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "simulate", interrupted)
    found, out, err = run(capsys, "place", *IN, "-o", "found.json", "-q")
    assert (found, out, err.count("\n")) == (130, "", 1)
    assert not (folder / "found.json").exists()


def test_without_an_output_the_answer_is_shown_and_nothing_written(folder, capsys):
    before = sorted(folder.iterdir())
    status, out, _ = run(capsys, "place", *IN, "--planner", "gpu", "-q")
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert status == 0 and sorted(folder.iterdir()) == before and lines["fork (3 ops) on pair"]
    assert lines["(Read)"].split()[1] == "gpu:0" and lines["(MatMul)"].split()[1] == "gpu:0"
    assert lines["step time"].endswith("0.000 ms, schedule critical-path") and lines["found by"].endswith("gpu") and "%" in lines["bound"]
    assert lines["gpu:0"].split()[1] == "3" and lines["cpu:0"].split()[1] == "0"


def test_json_is_the_document_that_is_written(folder, capsys):
    status, out, _ = run(capsys, "place", *IN, "--planner", "heft", "-o", "found.json", "--json", "-q")
    assert status == 0 and json.loads(out) == json.loads((folder / "found.json").read_text())
    status, again, _ = run(capsys, "place", *IN, "--planner", "heft", "--json", "-q")
    assert status == 0 and json.loads(again)["device"] == json.loads(out)["device"]


def test_a_published_file_is_placed_without_the_corpus(folder, capsys):
    costs = "forward_compute_time=1.000, backward_compute_time=2.000, activation_size=8.0, parameter_size=0.000"
    (folder / "vgg.txt").write_text(f"node1 -- Linear(2) -- {costs}\n")
    placed = ("place", "vgg.txt", "--cluster", "cluster.json", "--format", "pipedream", "--planner", "gpu", "--json", "-q")
    for mode, ops in (("training", 2), ("inference", 1)):
        status, out, _ = run(capsys, *placed, "--mode", mode)
        assert status == 0 and json.loads(out)["graph"]["ops"] == ops
    status, out, _ = run(capsys, *placed)
    (folder / "p.json").write_text(out)
    simulated = ("simulate", "vgg.txt", "--cluster", "cluster.json", "--format", "pipedream", "--placement", "p.json", "--json")
    assert json.loads(run(capsys, *simulated)[1]) == json.loads(out)["predicted"]
    status, _, err = run(capsys, *placed, "--dim", "x=3")
    assert status == 4 and "--dim: a graph of pipedream has nothing to choose" in err


def test_a_placement_is_improved_from_where_it_starts(folder, capsys):
    problem = ("graph.json", "--cluster", "cluster.json", "-q")
    assert run(capsys, "place", *problem, "-o", "slow.json", "--planner", "cpu")[0] == 0
    status, _, _ = run(capsys, "place", *problem, "-o", "found.json", "--start", "slow.json", "--evaluations", "30", "--search", "plain")
    document = json.loads((folder / "found.json").read_text())
    before = json.loads((folder / "slow.json").read_text())["predicted"]["step_time_ns"]
    assert status == 0 and document["predicted"]["step_time_ns"] <= before and "start" in document["provenance"]["planner"]
    status, _, err = run(capsys, "place", *problem, "-o", "other.json", "--start", "slow.json", "--planner", "heft")
    assert status == 2 and "--start: heft takes none" in err and not (folder / "other.json").exists()
