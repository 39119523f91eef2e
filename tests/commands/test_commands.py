"""Commands as users meet them: what they print, where, and their exit status. In process where that tells the same, as it is quicker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gnnplace import build, cli
from gnnplace.commands import candidates
from gnnplace.corpus import manifest
from gnnplace.frontends.json_cluster import read_cluster
from gnnplace.frontends.json_graph import read_graph

# x (cpu, 0) -> left (gpu) and right (cpu); by hand: EXECUTION_MODEL.md
GRAPH = {
    "format": "gnnplace.graph", "version": 1, "name": "fork",
    "ops": [
        {"name": "x", "kind": "Read", "outputs": [{"bytes": 1000}], "time_ns": {"cpu": 10, "gpu": 10}, "phase": "forward"},
        {"name": "left", "kind": "MatMul", "outputs": [{"bytes": 0}], "time_ns": {"cpu": 100, "gpu": 20}, "persistent_bytes": 50},
        {"name": "right", "kind": "MatMul", "outputs": [], "time_ns": {"cpu": 40, "gpu": 30}, "flops": 7},
    ],
    "edges": [[0, 0, 1], [0, 0, 2]],
}  # fmt: skip
CLUSTER = {
    "format": "gnnplace.cluster", "version": 1, "name": "pair",
    "devices": [
        {"name": "cpu:0", "kind": "cpu", "memory_bytes": 5000, "flops_per_s": 10**9, "memory_bytes_per_s": 10**9},
        {"name": "gpu:0", "kind": "gpu", "memory_bytes": 5000, "flops_per_s": 10**9, "memory_bytes_per_s": 10**9},
    ],
    "links": [
        {"src": "cpu:0", "dst": "gpu:0", "bandwidth_bytes_per_s": 10**12, "overhead_ns": 4, "latency_ns": 3},
        {"src": "gpu:0", "dst": "cpu:0", "bandwidth_bytes_per_s": 10**12, "overhead_ns": 4, "latency_ns": 3},
    ],
}  # fmt: skip
IN = ("graph.json", "--cluster", "cluster.json")
PLACEMENT = {"format": "gnnplace.placement", "version": 1, "device": {"x": "cpu:0", "left": "gpu:0", "right": "cpu:0"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, document in (("graph", GRAPH), ("cluster", CLUSTER), ("placement", PLACEMENT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    """Exit status, stdout and stderr of a command, in this process."""
    try:
        status = cli.main(arguments)
    except SystemExit as finished:
        status = finished.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_simulate_prints_the_predicted_object_in_one_line(folder, capsys):
    status, out, err = run(capsys, "simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--json")
    assert (status, err, out.count("\n")) == (0, "", 1)
    found = json.loads(out)
    bound, room = found.pop("bound_ns"), found.pop("room")
    assert bound >= 30 and room == 1 - bound / 50  # x, then left, each on its fastest device
    found.pop("bound", None)
    # x ends at 10 and takes the channel for 4 + 1, arrives 3 later; left runs 18-38, right 10-50
    assert found == {
        "step_time_ns": 50, "infeasible": None, "peak_memory_bytes": {"cpu:0": 1000, "gpu:0": 1050},
        "busy_ns": {"cpu:0": 50, "gpu:0": 20}, "transferred_bytes": 1000, "transfers": 1,
        "load_balance": 20 / 50, "communication_share": 5 / 50, "idle_ns": {"cpu:0": 0, "gpu:0": 30},
    }  # fmt: skip


def test_an_infeasible_placement_is_a_result(folder, capsys):
    small, large = CLUSTER["devices"]
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"devices": [small | {"memory_bytes": 10}, large]}))
    status, out, _ = run(capsys, "simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--json")
    found = json.loads(out)
    assert status == 0 and found["step_time_ns"] == 50 and "cpu:0" in found["infeasible"] and "990" in found["infeasible"]
    assert found["room"] is None and found["idle_ns"] == {"cpu:0": 0, "gpu:0": 30}


def test_simulate_prints_a_table_for_people(folder, capsys):
    status, out, _ = run(
        capsys, "simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--schedule", "fifo"
    )
    assert status == 0 and "fork on pair, schedule fifo" in out and "gpu:0" in out
    (bound,) = (line for line in out.splitlines() if line.startswith("bound"))
    found = json.loads(run(capsys, "simulate", *IN, "--placement", "placement.json", "--json")[1])
    gain = f"a placement could still gain {100 * (1 - found['bound_ns'] / 50):.1f} % at most"
    assert f"({found['bound']}), {gain}" in bound
    assert "40.0 %" in out and "10.0 %" in out and "busy 0.000 ms, idle 0.000 ms" in out


# the graph without times of its own, measured: x 20, left 60, right 80 on the CPU, x 5, left 8, right 9 on the GPU
MEASURED = {
    "format": "gnnplace.costs", "version": 1,
    "time_ns": {"cpu": {"x": 20, "left": 60, "right": 80}, "gpu": {"x": 5, "left": 8, "right": 9}},
    "links": [{"src": "cpu", "dst": "gpu", "samples": [[1000, 110, 140], [1000000, 100010, 100040]]}],
}  # fmt: skip


@pytest.fixture
def measured(folder):
    ops = [{key: value for key, value in op.items() if key != "time_ns"} for op in GRAPH["ops"]]
    (folder / "graph.json").write_text(json.dumps(GRAPH | {"ops": ops}))
    (folder / "costs.json").write_text(json.dumps(MEASURED))
    return folder


def test_measured_costs_are_those_of_the_simulated_step(measured, capsys):
    arguments = ("graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--costs", "costs.json", "--json")
    status, out, err = run(capsys, "simulate", *arguments)
    found = json.loads(out)
    # x 0-20; the transfer occupies 10 + 0.1 a byte and arrives 30 later, at 160; left 160-168, right 20-100
    assert status == 0 and found["busy_ns"] == {"cpu:0": 100, "gpu:0": 8} and found["step_time_ns"] == 168
    assert err == "costs.json: without transfers on gpu:0 -> cpu:0, which stay as the cluster has them\n"
    assert run(capsys, "simulate", *arguments, "-q")[2] == ""


def test_place_and_compare_plan_by_measured_costs(measured, capsys):
    options = ("graph.json", "--cluster", "cluster.json", "--costs", "costs.json", "-q")
    status, out, _ = run(capsys, "compare", *options, "--json")
    assert status == 0 and json.loads(out)["planners"][0]["step_time_ns"] == 22  # all on the GPU: 5 + 8 + 9
    assert run(capsys, "place", *options, "-o", "found.json")[0] == 0
    document = json.loads((measured / "found.json").read_text())
    assert document["predicted"]["step_time_ns"] == 22 and set(document["device"].values()) == {"gpu:0"}
    assert document["cluster"]["sha256"] == read_cluster(measured / "cluster.json").sha256
    placed = ("--placement", "found.json", "--json")
    assert json.loads(run(capsys, "simulate", *options, *placed)[1]) == document["predicted"]
    assert run(capsys, "simulate", "graph.json", "--cluster", "cluster.json", *placed)[0] == 0  # the same cluster under a roofline
    status, out, _ = run(capsys, "graphs", "show", *options, "--json")
    assert status == 0 and json.loads(out)["work_ns"] == 22


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_ns": {"cpu": {"x": 1, "left": 1, "right": 1}}}, "op 'x': no measured time for device kind 'gpu' (device 'gpu:0')"),
        ({"time_ns": {"cpu": {"x": 1}}}, "costs.json: time_ns.cpu: op 'left' has no entry (2 of 3 ops have none)"),
        ({"graph": {"sha256": "0" * 64}}, "the costs are for another graph"),
        ({"links": [{"src": "cpu", "dst": "gpu", "samples": [[8, 1, 1]]}]}, "link cpu:0 -> gpu:0: 1 transfers of 1 sizes"),
    ],
)
def test_costs_that_do_not_fit_are_one_line_and_status_4(measured, capsys, change, message):
    (measured / "costs.json").write_text(json.dumps(MEASURED | change))
    status, out, err = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--costs", "costs.json", "-q")
    assert (status, out, err.count("\n")) == (4, "", 1) and message in err
    status, _, err = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--costs", "none.json")
    assert status == 4 and "none.json: No such file" in err


PICTURE = ("simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--json", "--picture")


def test_simulate_draws_the_step(folder, capsys):
    status, out, _ = run(capsys, *PICTURE, "step.png")
    assert status == 0 and json.loads(out)["step_time_ns"] == 50
    assert (folder / "step.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_a_result_all_the_same(folder, capsys):
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"links": []}))
    status, out, err = run(capsys, *PICTURE, "step.svg")
    assert status == 4 and json.loads(out)["step_time_ns"] is None
    assert "step.svg: nothing to draw: edge" in err and not (folder / "step.svg").exists()


def test_compare_lists_every_planner_fastest_feasible_first(folder, capsys):
    status, out, err = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--json")
    found = json.loads(out)
    assert status == 0 and (found["graph"], found["cluster"], found["ops"], found["schedule"]) == ("fork", "pair", 3, "critical-path")
    rows = found["planners"]
    keys = {
        "planner", "step_time_ns", "infeasible", "peak_memory_bytes", "planning_ns", "fifo_step_time_ns", "busy_ns", "transferred_bytes",
        "transfers", "schedule", "room", "load_balance", "communication_share", "idle_ns",
    }  # fmt: skip
    assert len(rows) >= 2 and all(set(row) == keys for row in rows)
    times = [row["step_time_ns"] for row in rows if row["infeasible"] is None]
    assert times == sorted(times) and times[0] >= found["bound_ns"]
    assert [row["infeasible"] is None for row in rows] == sorted((row["infeasible"] is None for row in rows), reverse=True)
    assert all(any(line.startswith(f"{row['planner']}: ") for line in err.splitlines()) for row in rows[1:])  # progress
    assert [row["room"] for row in rows if row["infeasible"] is None] == [1 - found["bound_ns"] / time for time in times]


def test_quiet_is_quiet_and_fifo_is_fifo(folder, capsys):
    status, out, err = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--json", "-q", "--schedule", "fifo")
    assert (status, err) == (0, "")
    assert all(row["step_time_ns"] == row["fifo_step_time_ns"] for row in json.loads(out)["planners"])


def test_a_written_placement_simulates_as_predicted(folder, capsys):
    status, out, _ = run(capsys, "place", "graph.json", "--cluster", "cluster.json", "-o", "found.json", "--seed", "3", "-q")
    assert (status, out) == (0, "")
    document = json.loads((folder / "found.json").read_text())
    assert document["provenance"]["seed"] == 3 and document["provenance"]["tool"].startswith("gnnplace ")
    assert document["graph"]["sha256"] == read_graph(folder / "graph.json").sha256
    status, out, _ = run(capsys, "simulate", "graph.json", "--cluster", "cluster.json", "--placement", "found.json", "--json")
    assert status == 0 and json.loads(out) == document["predicted"]


def test_one_planner_may_be_named(folder, capsys):
    _, out, _ = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--json", "-q")
    name = json.loads(out)["planners"][-1]["planner"]
    status, _, _ = run(capsys, "place", "graph.json", "--cluster", "cluster.json", "-o", "found.json", "--planner", name, "-q")
    assert status == 0 and json.loads((folder / "found.json").read_text())["provenance"]["planner"] == name
    status, _, err = run(capsys, "place", "graph.json", "--cluster", "cluster.json", "-o", "found.json", "--planner", "heff")
    assert status == 2 and "'heff' is no planner" in err and name in err and err.count("\n") == 1


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
    status, _, said = run(capsys, "place", *IN, "-o", "three.json", "--budget", "0.2s")
    assert status == 0 and "best: " in said
    assert len(set(told := said.splitlines())) == len(told)  # progress says nothing twice


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), "given"), (("--planner", "best"), "given"), (("--schedule", "fifo"), "fifo"), (("--planner", "heft"), "critical-path")],
)
def test_best_orders_ops_by_itself_unless_a_schedule_is_named(folder, capsys, monkeypatch, options, expected):
    asked = []

    def watching(function, schedule):
        return lambda *given: asked.append(given[schedule]) or function(*given)

    monkeypatch.setattr(build, "portfolio", watching(build.portfolio, 4))
    monkeypatch.setattr(build, "planners", watching(build.planners, 3))
    assert run(capsys, "place", *IN, "-o", "found.json", "-q", *options)[0] == 0
    assert asked[0] == expected


def test_without_scotch_it_is_said_how_to_get_it(folder, capsys, monkeypatch):
    monkeypatch.setattr(build, "available", lambda: False)
    _, out, _ = run(capsys, "compare", *IN, "--json", "-q")
    document = json.loads(out)
    assert set(document["missing"]) == {"scotch", "min-cut"} and not {row["planner"] for row in document["planners"]} & {
        "scotch",
        "min-cut",
    }
    assert run(capsys, "compare", *IN, "-q")[1].count("apt-get install libscotch-7.0") == 2
    status, _, err = run(capsys, "place", *IN, "-o", "found.json", "--planner", "scotch")
    assert status == 2 and "apt-get install libscotch-7.0" in err


def test_where_nothing_is_feasible_the_status_is_3_and_nothing_is_written(folder, capsys):
    small = [device | {"memory_bytes": 10} for device in CLUSTER["devices"]]
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"devices": small}))
    status, out, err = run(capsys, "place", "graph.json", "--cluster", "cluster.json", "-o", "found.json")
    assert ", infeasible\n" in err  # progress says so of the best so far
    assert (status, out) == (3, "") and "nothing feasible found" in err and not (folder / "found.json").exists()
    status, out, _ = run(capsys, "compare", "graph.json", "--cluster", "cluster.json", "--json", "-q")
    assert status == 3 and all(row["infeasible"] for row in json.loads(out)["planners"])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("simulat",), 2, "invalid choice: 'simulat'"),
        ((), 2, "required: COMMAND"),
        (("simulate",), 2, "required: GRAPH, --cluster, --placement"),
        (("simulate", *IN, "--placement", "placement.json", "--fast"), 2, "unrecognized arguments: --fast"),
        (("simulate", *IN, "--placement", "placement.json", "--schedule", "random"), 2, "invalid choice: 'random'"),
        (("simulate", *IN, "--placement", "placement.json", "--schedule", "given"), 4, "priority: the schedule 'given' needs priorities"),
        (("simulate", *IN, "--placement", "none.json"), 4, "gnnplace simulate: none.json: No such file or directory"),
        (("simulate", *IN, "--placement", "."), 4, ".: Is a directory"),
        (("simulate", *IN, "--placement", "graph.json"), 4, "graph.json: format: 'gnnplace.graph' is not known"),
        (("simulate", *IN, "--placement", "placement.json", "--picture", "step.pgf"), 4, "the ending is none of .png, .svg, .pdf"),
        (("simulate", "nmt", "--cluster", "k40-2", "--placement", "placement.json"), 4, "'nmt' is no graph of the corpus"),
        (("compare", "graph.json", "--cluster", "k80-2"), 4, "'k80-2' is no cluster preset"),
        (("place", *IN, "-o", "none/found.json"), 4, "none/found.json: there is no such folder"),
        (("place", *IN, "-o", "p.json", "--planner", "heft", "--checkpoint", "c"), 2, "--checkpoint: heft takes none; best does"),
        (("place", *IN, "-o", "p.json", "--planner", "heft", "--budget", "1s"), 2, "--budget: heft takes none; best does"),
        (("place", *IN, "-o", "p.json", "--budget", "soon"), 2, "'soon' is not a number of seconds"),
        (("place", *IN, "-o", "p.json", "--evaluations", "0"), 2, "0 is too few"),
        (("place", *IN, "-o", "p.json", "--evaluations", "9", "--budget", "1s"), 2, "not allowed with"),
        (("place", *IN, "-o", "p.json", "--samples", "-1"), 2, "'-1' is not a count"),
        (("graphs", "shwo"), 2, "invalid choice: 'shwo'"),
        (("graphs", "show", "none"), 4, "'none' is no graph of the corpus"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_a_status(folder, capsys, monkeypatch, arguments, status, message):
    monkeypatch.setenv("GNNPLACE_DATASETS", str(folder))
    found, out, err = run(capsys, *arguments)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert message in err


def test_a_graph_is_imported_listed_and_shown(folder, capsys, monkeypatch):
    monkeypatch.setenv("GNNPLACE_DATASETS", str(folder))
    about = ["--family", "toy", "--lineage", "toy", "--source", "made", "--licence", "Apache-2.0", "--split", "test", "--mode", "training"]
    assert run(capsys, "graphs", "import", "graph.json", *about)[0] == 0
    assert manifest.names() == ("fork",)
    status, out, _ = run(capsys, "graphs", "list", "--json")
    assert status == 0 and json.loads(out) == [
        {"name": "fork", "family": "toy", "lineage": "toy", "split": "test", "mode": "training", "source": "made",
         "ops": 3, "edges": 2, "licence": "Apache-2.0", "sha256": read_graph(folder / "graph.json").sha256}
    ]  # fmt: skip
    assert "fork" in run(capsys, "graphs", "list")[1]
    status, _, err = run(capsys, "graphs", "import", "graph.json", *about)
    assert status == 4 and "'fork' is in the corpus already" in err
    assert run(capsys, "graphs", "import", "graph.json", "--name", "fork-2", *about)[0] == 0
    assert manifest.graph("fork-2").name == "fork-2"


def test_published_formats_are_imported(folder, capsys, monkeypatch):
    monkeypatch.setenv("GNNPLACE_DATASETS", str(folder))
    about = ["--family", "toy", "--lineage", "toy", "--source", "made", "--licence", "MIT", "--split", "test", "--mode", "training"]
    costs = "forward_compute_time=1.000, backward_compute_time=2.000, activation_size=8.0, parameter_size=0.000"
    (folder / "vgg.txt").write_text(f"node1 -- Linear(2) -- {costs}\n")
    assert run(capsys, "graphs", "import", "vgg.txt", "--format", "pipedream", *about)[0] == 0
    assert manifest.graph("vgg").op_names == ("node1", "node1/backward")
    node = {"id": 1, "name": "n", "supportedOnFpga": 1, "cpuLatency": 2, "fpgaLatency": 1, "size": 8}
    document = {"maxSizePerFPGA": 1, "maxFPGAs": 1, "maxCPUs": 1, "nodes": [node], "edges": []}
    (folder / "bert.json").write_text(json.dumps(document))
    assert run(capsys, "graphs", "import", "bert.json", "--format", "msr-fiddle", "--name", "bert-24", *about)[0] == 0
    assert manifest.graph("bert-24").given_time_ns.tolist() == [[2_000_000, 1_000_000]]
    status, _, err = run(capsys, "graphs", "import", "vgg.txt", "--format", "msr-fiddle", *about)
    assert status == 4 and "vgg.txt: line 1 column 1: not JSON" in err
    assert run(capsys, "graphs", "import", "bert.json", "--format", "onyx", *about)[0] == 2


def test_show_says_what_a_graph_holds_and_what_placing_it_can_gain(folder, capsys):
    status, out, _ = run(capsys, "graphs", "show", "graph.json", "--cluster", "cluster.json", "--json")
    found = json.loads(out)
    # fastest: 10 + 20 + 30; critical path x -> right
    assert status == 0 and (found["work_ns"], found["critical_path_ns"], found["parallelism"]) == (60, 40, 1.5)
    assert found["bound_ns"] >= 40 and found["persistent_bytes"] == 50 and found["output_bytes"] == 1000
    assert found["kinds"] == [
        {"value": "MatMul", "ops": 2, "flops": 7, "work_ns": 50, "persistent_bytes": 50},
        {"value": "Read", "ops": 1, "flops": 0, "work_ns": 10, "persistent_bytes": 0},
    ]
    assert [(share["value"], share["ops"]) for share in found["phases"]] == [(None, 2), ("forward", 1)]
    status, out, _ = run(capsys, "graphs", "show", "graph.json", "--cluster", "cluster.json")
    assert status == 0 and "work / critical path" in out and "1.50" in out and "MatMul" in out


def test_show_draws_a_graph(folder, capsys):
    show = ("graphs", "show", "graph.json", "--cluster", "cluster.json", "--picture")
    assert run(capsys, *show, "graph.svg")[0] == 0
    assert "work / critical path 1.50" in (folder / "graph.svg").read_text()  # as a comment beside the title's letters
    for path, message in (("graph.gif", "graph.gif: the ending is none of"), ("none/graph.svg", "none/graph.svg: there is no such folder")):
        status, out, err = run(capsys, *show, path)
        assert (status, out, err.count("\n")) == (4, "", 1) and message in err


def test_an_interrupt_and_a_termination_have_their_status(folder, capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    def terminated(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)

    for stop, status in ((interrupted, 130), (terminated, 143)):
        monkeypatch.setattr(candidates, "simulate", stop)
        found, out, err = run(capsys, "place", *IN, "-o", "found.json", "-q")
        assert (found, out, err.count("\n")) == (status, "", 1)
        assert not (folder / "found.json").exists()


def test_the_version_is_that_of_the_project():
    import tomllib

    from gnnplace.version import VERSION

    assert tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_help_and_simulate_import_neither_torch_nor_tensorflow(folder):
    program = (
        "import sys; from gnnplace.cli import main\n"
        "for arguments in (['--help'], 'simulate graph.json --cluster cluster.json --placement placement.json --json'.split()):\n"
        "    try: main(arguments)\n"
        "    except SystemExit: assert 'numpy' not in sys.modules\n"
        "heavy = {'torch', 'tensorflow', 'lightning', 'mlflow', 'torch_geometric'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "commands:" in done.stdout and json.loads(done.stdout.splitlines()[-1])["step_time_ns"] == 50


def test_the_program_itself_ends_with_the_status_and_without_a_traceback(folder):
    (folder / "graph.json").write_text('{"format": "gnnplace.graph", "version": 1, "name": "g", "ops": [{}], "edges": []}')
    command = [sys.executable, "-m", "gnnplace", "simulate", *IN, "--placement", "placement.json"]
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "gnnplace simulate: graph.json: ops[0].name: is missing\n"


def test_a_reader_that_leaves_is_no_error(folder):
    command = f"{sys.executable} -m gnnplace graphs show graph.json --cluster cluster.json --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def _environment():
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
