"""docs/exporting.md agrees with the code: each target has a row and a section, and its commands write something."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
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
NET = """
import torch
from torch import nn
import gnnplace as gp

def step():
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)) for _ in range(8)))
    batch = torch.randn(512, 256), torch.randn(512, 256)
    return gp.TorchStep(net, lambda net, x, y: nn.functional.mse_loss(net(x), y), batch, torch.optim.SGD(net.parameters(), 0.1))
"""


def run(anchor: str) -> list[Path]:
    """Runs the commands of a section here; what they write."""
    written = []
    for line in "".join(SECTIONS[anchor].blocks("bash")).splitlines():
        program, *arguments = shlex.split(line)
        if program == "torchrun":
            train(arguments)
        else:
            assert program == "gnnplace" and cli.main([*arguments, "-q"]) == DONE
            written.append(Path(arguments[-1]))
    return written


def train(arguments: list[str]) -> None:
    """Runs torchrun, with as many processes as the plan beside the script has."""
    at = arguments.index("--nproc-per-node") + 1
    script = next(Path(each) for each in arguments if each.endswith("run.py"))
    arguments[at] = str(len(json.loads(script.with_name("plan.json").read_text())["devices"]))
    ran = subprocess.run([sys.executable, "-m", "torch.distributed.run", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and "losses of micro-batches:" in ran.stdout, ran.stderr


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
    if target == "torch-pipelining":
        Path("net.py").write_text(NET)
    if target == "tensorflow":
        tf = pytest.importorskip("tensorflow")
        with tf.Graph().as_default() as graph:
            tf.nn.softmax(tf.matmul(tf.compat.v1.placeholder(tf.float32, (4, 8), "x"), tf.ones((8, 8))), name="y")
        Path("graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
