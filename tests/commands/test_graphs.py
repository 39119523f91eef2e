"""`gnnplace graphs import`, `list` and `show`, as users meet them."""

import json

from support.fork_on_pair import run

from gnnplace.corpus import manifest
from gnnplace.formats.graphs import read_graph


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
    for path, status, message in (("graph.gif", 4, "the ending is none of"), ("none/graph.svg", 2, "there is no such folder")):
        found, out, err = run(capsys, *show, path)
        assert (found, out, err.count("\n")) == (status, "", 1) and f"{path}: {message}" in err
