"""A model that the corpus doesn't have goes from code, or from another program's file, to a placement in one command."""

import json
import os
from pathlib import Path

import pytest
from support.fork_on_pair import run

from gnnplace.sources import graphs as sources

CODE = Path(__file__).parents[1] / "support" / "one_command.py"


def placed(capsys, tmp_path, *graph: str) -> dict:
    """What `gnnplace place` writes for such a GRAPH."""
    path = tmp_path / "placement.json"
    status, _, err = run(capsys, "place", *graph, "--cluster", "k40-2", "--planner", "metis", "-o", str(path), "-q")
    assert status == 0, err
    return json.loads(path.read_text())


def check(document: dict, name: str) -> None:
    assert document["graph"]["name"] == name and document["predicted"]["infeasible"] is None
    assert len(document["device"]) == document["graph"]["ops"] and document["predicted"]["step_time_ns"] > 0


@pytest.mark.parametrize("function", ["small_resnet", "encoder"])  # tagger: below
def test_from_pytorch(function, capsys, tmp_path):
    check(placed(capsys, tmp_path, f"{CODE}:{function}"), f"one_command.{function}")


def test_flops_of_pytorch_networks_by_hand():
    resnet, encoder = (sources.graph(f"{CODE}:{function}") for function in ("small_resnet", "encoder"))
    pixels = 4 * 16 * 16
    forward = 2 * pixels * (8 * 27 + 4 * 8 * 72)
    gradients = 2 * forward - 2 * pixels * 8 * 27  # none of the images
    conv = resnet.canonical_kind.among(["conv", "conv_grad_input", "conv_grad_weight"])
    assert resnet.flops[conv].sum() == forward + gradients
    tokens = 2 * 7
    assert encoder.flops[encoder.canonical_kind.among(["matmul", "batch_matmul"])].sum() == 2 * 2 * tokens * (4 * 32 * 32 + 2 * 32 * 64)
    assert encoder.persistent_bytes.sum() == 2 * 4 * (4 * (32 * 32 + 32) + 2 * 32 * 64 + 64 + 32 + 4 * 32)


def test_what_code_returns_may_be_a_graph():
    assert sources.graph(f"{CODE}:described").name == "by itself"


@pytest.mark.parametrize("function", ["towers", "cubes", "separable", "separable_inference"])
def test_from_tensorflow(function, capsys, tmp_path):
    pytest.importorskip("tensorflow")
    check(placed(capsys, tmp_path, f"{CODE}:{function}"), f"one_command.{function}")


def test_from_a_graphdef(capsys, tmp_path):
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 6), "x")
        tf.nn.relu(tf.matmul(x, tf.ones((6, 5))), "y")
    path = tf.io.write_graph(graph, str(tmp_path), "net.pbtxt")
    document = placed(capsys, tmp_path, path, "--dim", "x[0]=3", "--fetch", "y:0")
    check(document, "net")
    found = sources.graph(path, sources.Reading(dims=(("x[0]", 3),), fetches=("y:0",)))
    assert document["graph"]["sha256"] == found.sha256 and found.flops.sum() == 2 * 3 * 6 * 5 + 3 * 5
    status, _, err = run(capsys, "graphs", "show", path)
    assert status == 4 and err.endswith("leaves dimension 0 open; give it by --dim 'x[0]=SIZE'\n") and err.count("\n") == 1


def test_all_commands_take_the_same_graph(capsys, tmp_path):
    graph = f"{CODE}:tagger"
    document = placed(capsys, tmp_path, graph)
    check(document, "one_command.tagger")
    path = str(tmp_path / "placement.json")
    status, out, _ = run(capsys, "simulate", graph, "--cluster", "k40-2", "--placement", path, "--json")
    assert status == 0 and json.loads(out) == document["predicted"]
    status, out, _ = run(capsys, "graphs", "show", graph, "--json")
    assert status == 0 and json.loads(out)["ops"] == document["graph"]["ops"]


def test_a_module_of_a_package_is_found_where_the_command_runs(capsys, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "nets.py").write_text(CODE.read_text())
    monkeypatch.chdir(tmp_path)
    check(placed(capsys, tmp_path, "mine.nets:tagger"), "nets.tagger")


def test_a_file_beside_the_code_may_have_the_name_of_a_module_of_pythons(capsys, tmp_path, monkeypatch):
    for name in ("signal", "profile", "queue", "copy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('imported by mistake')")
    (tmp_path / "nets.py").write_text(CODE.read_text())
    monkeypatch.chdir(tmp_path)
    for graph in ("nets:tagger", "nets.py:tagger"):
        status, out, err = run(capsys, "graphs", "show", graph, "--json")
        assert (status, json.loads(out)["name"], err) == (0, "nets.tagger", "")


@pytest.mark.parametrize(("here", "found"), [("project", True), ("project/nets", False), ("elsewhere", False)])
def test_a_file_finds_modules_of_the_current_folder_if_it_lies_in_it(capsys, tmp_path, monkeypatch, here, found):
    for path in ("project/nets", "elsewhere"):
        (tmp_path / path).mkdir(parents=True)
    for folder in ("project", "elsewhere"):
        (tmp_path / folder / "beside_of_test.py").write_text(CODE.read_text())
    (tmp_path / "project" / "nets" / "net.py").write_text("from beside_of_test import tagger\n")
    monkeypatch.chdir(tmp_path / here)
    status, _, err = run(capsys, "graphs", "show", os.path.relpath(tmp_path / "project" / "nets" / "net.py") + ":tagger", "--json")
    assert (status, "No module named 'beside_of_test'" in err) == ((0, False) if found else (4, True))


def line(text: str) -> str:
    return next(f"{CODE}, line {number}: " for number, line in enumerate(CODE.read_text().splitlines(), 1) if text in line)


REFUSED = {
    "number": "returned a int, which is none of TorchStep, TorchInference, TensorFlowStep, TensorFlowFunction, KerasModel and Computation",
    "bare_module": "returned a Linear, which has no inputs yet; give TorchInference(module, inputs), or TorchStep(module, loss, inputs)",
    "fails": f"fails: can't be built: {line('torch.zeros(1, 5)')}RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    "no_graph": "no_graph: can't be built: Source.computation_graph returned a int, which is no ComputationGraph",
    "no_optimizer": f"no_optimizer: can't be built: {line('rmsprob')}optimizer: 'rmsprob' is no name; nearest is 'rmsprop'",
    "decides": "decides: can't be built: module: aten._local_scalar_dense.default needs the values of its tensors",
    "none_such": "has no function 'none_such'",
    "unfinished": f"unfinished: unsupported: {line('not yet')}NotImplementedError: not yet",
    "ends": f"ends: can't be built: {line('SystemExit(3)')}SystemExit: 3",
    "crashes": "crash: load: the process",
}


@pytest.mark.parametrize("function", REFUSED)
def test_what_is_wrong_with_code_is_said_in_a_line(function, capsys):
    complaint(capsys, f"{CODE}:{function}", REFUSED[function])


@pytest.mark.parametrize(
    "function, message",
    [("bare_keras", "which has no inputs yet; give KerasModel(model, inputs)"), ("bare_function", "TensorFlowFunction(function, specs)")],
)
def test_what_is_missing_in_tensorflow_is_said_in_a_line(function, message, capsys):
    pytest.importorskip("tensorflow")
    complaint(capsys, f"{CODE}:{function}", message)


def test_files_and_options_that_do_not_fit(capsys, tmp_path):
    complaint(capsys, f"{tmp_path}/none.py:step", f"{tmp_path}/none.py: no such file")
    complaint(capsys, f"{CODE}:tagger", "--fetch loss: ", "--fetch", "loss")
    complaint(capsys, "rnnlm-2", "--fetch loss: rnnlm-2 is no GraphDef (*.pb, *.pbtxt), so it says itself", "--fetch", "loss")
    complaint(capsys, f"{CODE}:tagger", "--dim batch=8: ", "--dim", "batch=8")


def complaint(capsys, graph: str, message: str, *options: str) -> None:
    status, out, err = run(capsys, "graphs", "show", graph, *options)
    assert (status, out) == (4, "") and message in err and err.count("\n") == 1
