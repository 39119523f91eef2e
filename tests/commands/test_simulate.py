"""`gnnplace simulate`, as users meet it."""

import json

from support.fork_on_pair import CLUSTER, IN, run


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


PICTURE = ("simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--json", "--picture")


def test_simulate_draws_the_step(folder, capsys):
    status, out, _ = run(capsys, *PICTURE, "step.png")
    assert status == 0 and json.loads(out)["step_time_ns"] == 50
    assert (folder / "step.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_a_result_all_the_same(folder, capsys):
    (folder / "cluster.json").write_text(json.dumps(CLUSTER | {"links": [], "isolated": True}))
    status, out, err = run(capsys, *PICTURE, "step.svg")
    assert status == 4 and json.loads(out)["step_time_ns"] is None
    assert "step.svg: nothing to draw: edge" in err and not (folder / "step.svg").exists()
