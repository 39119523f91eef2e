"""`gnnplace export`, as users meet it."""

import pytest
from support.fork_on_pair import IN, run

import gnnplace as gp
from gnnplace.exports.targets import TARGETS

ANY_GRAPH = ("chrome-trace", "dot", "graphml", "networkx")  # the other targets read networks of one framework


@pytest.mark.parametrize("to", ANY_GRAPH)
def test_export_writes_what_the_target_says(to, folder, capsys):
    status, out, err = run(capsys, "export", *IN, "--placement", "placement.json", "--to", to, "-o", "out")
    assert (status, out, err) == (0, "", "written to out\n")
    assert all(name in (folder / "out").read_text() for name in ("x", "left", "right"))


@pytest.mark.parametrize("to", sorted(set(TARGETS) - {*ANY_GRAPH, "tensorflow"}))  # which takes the names of ops of any graph
def test_a_graph_of_no_framework_is_refused_in_one_line_and_nothing_is_written(to, folder, capsys):
    status, out, err = run(capsys, "export", *IN, "--placement", "placement.json", "--to", to, "-o", "out")
    assert (status, out, err.count("\n")) == (2, "", 1) and f"--to {to}: takes " in err and not (folder / "out").exists()


def test_an_unknown_target_is_one_line_and_no_file(folder, capsys):
    status, out, err = run(capsys, "export", *IN, "--placement", "placement.json", "--to", "onnx", "-o", "out")
    assert (status, out, err.count("\n")) == (2, "", 1) and "invalid choice: 'onnx'" in err
    problem = gp.problem("graph.json", cluster="cluster.json")
    with pytest.raises(ValueError, match="'tensorbord' is no target"):
        gp.export(problem, gp.load("placement.json", problem), "tensorbord", folder / "out")
    assert not (folder / "out").exists()


def test_a_missing_folder_is_said_before_anything_is_read(folder, capsys):
    status, _, err = run(capsys, "export", "no.json", "--cluster", "no", "--placement", "no", "--to", "dot", "-o", "no/out")
    assert status == 2 and err.count("\n") == 1 and "no" in err
