"""`gnnplace train` on ONNX files: `--dim` sizes the dimensions that they only name, for all files or for one of them."""

import pytest
import yaml
from support.onnx_files import model, node, saved, value, weight

from gnnplace import cli
from gnnplace.sources import graphs as sources
from gnnplace.training.run import in_folder, problems

TWO = "--problems=[[one.onnx, k40-2], [two.onnx, k40-2]]"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two products: x [batch 64] in one.onnx, x [batch steps 64] in two.onnx."""
    monkeypatch.chdir(tmp_path)
    for name, shape in (("one", ["batch", 64]), ("two", ["batch", "steps", 64])):
        saved(tmp_path, model([node("MatMul", "x w", "y")], [value("x", shape)], ["y"], [weight("w", [64, 64])]), f"{name}.onnx")
    return tmp_path


def test_sizes_are_for_every_file_or_for_the_one_that_is_named(folder):
    found = sources.graphs(["one.onnx", "two.onnx", "dlrm"], [("two.onnx:batch", 3), ("two.onnx:steps", 5), ("batch", 8)])
    flops = {name: int(graph.flops.sum()) for name, graph in found.items()}
    assert (flops["one.onnx"], flops["two.onnx"]) == (2 * 8 * 64 * 64, 2 * 3 * 5 * 64 * 64)
    assert found["dlrm"].num_ops == 250


def test_a_run_keeps_its_sizes(folder, monkeypatch):
    """In its configuration: another run of that needs no --dim, and --dim wins over it. What a run does with its problems is left out."""
    seen = []

    def prepare(config, run_folder, stack, *, resumed, quiet):
        opened = problems.opened(config, run_folder, stack, quiet)
        kept = run_folder.path / "config.yaml"
        (folder / "kept.yaml").write_text(kept.read_text())
        seen.append([int(problem.graph.flops.sum()) // (2 * 64 * 64) for problem in opened.problems])
        raise ValueError("enough")

    monkeypatch.setattr(in_folder, "prepare", prepare)
    assert cli.main(["train", TWO, "--dim", "batch=8", "--dim", "two.onnx:steps=4", "-q"]) == 4
    assert yaml.safe_load((folder / "kept.yaml").read_text())["dims"] == [["batch", 8], ["two.onnx:steps", 4]]
    assert cli.main(["train", "--config", "kept.yaml", "-q"]) == cli.main(["train", "--config", "kept.yaml", "--dim", "batch=2", "-q"]) == 4
    assert seen == [[8, 8 * 4], [8, 8 * 4], [2, 2 * 4]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TWO,), "one.onnx: input 'x': dimension 0 ('batch') has no fixed size; set it with --dim"),
        ((TWO, "--dim", "batch=8"), "two.onnx: input 'x': dimension 1 ('steps') has no fixed size; set it with --dim"),
        ((TWO, "--dim", "batch=8", "--dim", "steps=4"), "one.onnx: dims: 'steps' is no input dimension without a fixed size"),
        ((TWO, "--dim", "batch=8", "--dim", "three.onnx:steps=4"), "one.onnx: dims: 'three.onnx:steps' is no input dimension"),
        (("--problems=[[dlrm, k40-2]]", "--dim", "batch=8"), "--dim batch=8: no graph is an ONNX file (*.onnx)"),
    ],
)
def test_sizes_that_do_not_fit_are_one_line_and_status_4(folder, capsys, arguments, message):
    assert cli.main(["train", *arguments, "-q"]) == 4
    complaint = capsys.readouterr().err
    assert message in complaint and complaint.count("\n") == 1
    assert not list(folder.glob("runs/*/"))


def test_a_resumed_run_takes_no_other_sizes(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "--resume", "somewhere", "--dim", "batch=8"])
    assert stopped.value.code == 2 and "so --dim can't be changed" in capsys.readouterr().err
