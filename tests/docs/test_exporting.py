"""docs/exporting.md agrees with the code: each target has a row and a section, and its commands write something."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from support.pages import sections
from support.small_networks import network

from gnnplace import cli
from gnnplace.commands.usage import DONE
from gnnplace.exports.targets import TARGETS

SECTIONS = {section.anchor: section for section in sections("exporting.md")}
TOP = "exporting-a-placement"


def run(anchor: str) -> list[Path]:
    """Runs the commands of a section here; what they write."""
    written = []
    for line in "".join(SECTIONS[anchor].blocks("bash")).splitlines():
        program, *arguments = shlex.split(line)
        assert program == "gnnplace" and cli.main([*arguments, "-q"]) == DONE
        written.append(Path(arguments[-1]))
    return written


def test_every_target_has_a_row_and_a_section() -> None:
    rows = re.findall(r"^\| `(\w[\w-]*)`", SECTIONS[TOP].text, re.MULTILINE)
    assert rows == sorted(TARGETS) and [anchor for anchor in SECTIONS if anchor != TOP] == sorted(TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_the_commands_of_a_section_write_something(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    provide(target)
    if "placement.json" in SECTIONS[target].text.partition(" place ")[0]:  # it places nothing itself
        run(TOP)
    written = run(target)
    assert f"--to {target} " in SECTIONS[target].text and written and all(path.stat().st_size for path in written)


def provide(target: str) -> None:
    """The network that a section places, in this folder."""
    module, x = network("towers")
    if target == "openvino":
        openvino = pytest.importorskip("openvino")
        openvino.save_model(openvino.convert_model(module, example_input=x, input=list(x.shape)), "net.xml")
    if target == "onnxruntime":
        pytest.importorskip("onnx")
        torch.onnx.export(module, (x,), "net.onnx", dynamo=False, verbose=False, input_names=["x"])
    if target == "tensorflow":
        tf = pytest.importorskip("tensorflow")
        with tf.Graph().as_default() as graph:
            tf.nn.softmax(tf.matmul(tf.compat.v1.placeholder(tf.float32, (4, 8), "x"), tf.ones((8, 8))), name="y")
        Path("graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
