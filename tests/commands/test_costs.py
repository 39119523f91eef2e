"""--costs: measured costs instead of a roofline, in every command that takes a graph and a cluster."""

import json

import pytest
from support.fork_on_pair import GRAPH, run

from gnnplace.formats.clusters import read_cluster

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
    assert err == "costs.json: has no transfers on gpu:0 -> cpu:0; these links keep the cluster's values\n"
    assert run(capsys, "simulate", *arguments, "-q")[2] == ""


def test_measured_costs_are_those_of_each_micro_batch(measured, capsys):
    options = ("graph.json", "--cluster", "cluster.json", "--costs", "costs.json", "-q", "--devices", "gpu:0", "--json")
    status, out, _ = run(capsys, "place", *options, "--planner", "heft", "--micro-batches", "3")
    predicted = json.loads(out)["predicted"]  # x 5, left 8, right 9, three times, and the variable of left with its read
    assert status == 0 and predicted["busy_ns"] == {"gpu:0": 3 * 22 + 2} and predicted["micro_batch_time_ns"] == 23


@pytest.mark.slow
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
