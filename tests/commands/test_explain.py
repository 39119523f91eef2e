"""`gnnplace explain`, as users meet it."""

import json

from support.fork_on_pair import IN, run

PLACED = (*IN, "--placement", "placement.json")


def test_explain_prints_the_chain_and_what_would_help(folder, capsys):
    status, out, err = run(capsys, "explain", *PLACED)
    assert (status, err) == (0, "") and out.startswith("fork on pair: 0.000 ms; bound ")
    for words in ("The critical chain", "cpu:0", "the step begins", "What to change first", "2 times as fast"):
        assert words in out


def test_as_json_it_is_one_line_with_everything(folder, capsys):
    status, out, err = run(capsys, "explain", *PLACED, "--json")
    found = json.loads(out)
    assert (status, err, out.count("\n"), found["step_time_ns"]) == (0, "", 1, 50)
    # x on the CPU, then right on the CPU; left ends at 38
    assert [(part["start_ns"], part["end_ns"], part["where"]) for part in found["chain"]] == [(0, 10, "cpu:0"), (10, 50, "cpu:0")]
    assert found["places_ns"] == {"cpu:0": 50} and "micro_batches" not in found["chain"][0]
    assert {change["what"]: change["step_time_ns"] for change in found["changes"]}["cpu:0"] == 33  # x 0-5, left 13-33, right 5-25
    assert found["moves"] == []  # left takes longer on the CPU, right waits for left on the GPU, x sends its bytes the other way


def test_a_part_says_what_it_waited_for_and_what_moving_it_does(folder, capsys):
    status, out, err = run(capsys, "explain", "graph.json", "right", *PLACED[1:], "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["work_ns"] == {"cpu:0": 40} and found["waits"] == ["x ended", "the step begins"] and found["chain_ns"] == 40
    assert [move["device"] for move in found["moves"]] == ["gpu:0"]
    assert "stands on" in run(capsys, "explain", "graph.json", "right", *PLACED[1:])[1]


def test_an_unknown_part_is_one_line(folder, capsys):
    status, out, err = run(capsys, "explain", "graph.json", "rihgt", *PLACED[1:])
    assert (status, out) == (4, "") and err == (
        "gnnplace explain: 'rihgt' is no module or op of the graph; nearest is 'right'; choose from x, left, right\n"
    )
