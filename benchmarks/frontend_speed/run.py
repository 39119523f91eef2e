"""How long do front-ends take? Seconds on one core to make a ComputationGraph of about 50,000 ops, beside the framework's own work.

    python -m benchmarks.frontend_speed.run [--repeats 3] [--name frontend_speed] [--json]

Processor time of this process, pinned to one core; the fastest of repeats (neighbours on the machine slow a core), after a small graph
that compiles. The GraphDef is a GNMT training step (8 + 8 layers, 56 + 56 steps), read from a file as `gnnplace place net.pb` reads it,
each part by itself, but in this process; the ATen graph is the training step of 370 transformer encoder layers with Adam, on the `meta`
device. The manifest is that of the corpus.
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import tensorflow as tf
import torch
from torch import Tensor, nn

from datasets.build import tensorflow_gnmt
from experiments import output, results
from gnnplace.corpus import manifest, store
from gnnplace.frontends.tensorflow import graphdef_child
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.frontends.torch.builder import traced_step
from gnnplace.frontends.torch.flat_step import Updating
from gnnplace.frontends.torch.trace import trace

HERE = Path(__file__).resolve().parent
STEPS, LAYERS = 56, 370
BARS_S = {"graphdef, binary": 15.0, "graphdef, text": 15.0, "aten": 15.0, "manifest": 0.2}
T = TypeVar("T")


def timed(seconds: dict[str, float], part: str, work: Callable[[], T]) -> T:
    """What `work` returns; its processor time goes to `seconds[part]`."""
    started = time.process_time()
    result = work()
    seconds[part] = time.process_time() - started
    return result


def written(folder: Path, steps: int) -> dict[str, Path]:
    """The GraphDef as a binary and as a text file."""
    with tf.Graph().as_default() as graph:
        tensorflow_gnmt.build(8, steps=steps)
    names = {"graphdef, binary": "net.pb", "graphdef, text": "net.pbtxt"}
    return {what: Path(tf.io.write_graph(graph, str(folder), name, as_text=name.endswith("txt"))) for what, name in names.items()}


def graphdef(path: Path) -> dict[str, Any]:
    """The parts of reading a file: parsed by protobuf, checked and inlined, imported by TensorFlow, made a graph, handed over."""
    seconds: dict[str, float] = {}
    parsed = timed(seconds, "parse", lambda: graphdef_child.parsed(path))
    flat = timed(seconds, "check", lambda: graphdef_child.checked(parsed, {})).graph
    imported = tf.Graph()
    with imported.as_default():
        timed(seconds, "import", lambda: tf.graph_util.import_graph_def(flat, name=""))
    made = timed(seconds, "build", lambda: read_step(imported, ["train"], "net"))
    packed = timed(seconds, "hand over", lambda: graphdef_child.packed(made))
    assert timed(seconds, "take", lambda: store.unpacked(base64.b64decode(packed))).sha256 == made.sha256
    return {"ops": made.num_ops, "framework_s": seconds.pop("import"), "ours_s": sum(seconds.values()), "parts": seconds}


def loss(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).sum()


def aten(layers: int) -> dict[str, Any]:
    """A training step: traced by PyTorch, made a graph by us."""
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0)
        module = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        inputs = (torch.empty(16, 2, 64),)
    seconds: dict[str, float] = {}
    traced = timed(seconds, "trace", lambda: trace(module, loss, inputs, Updating("adam")))
    made = timed(seconds, "build", lambda: traced_step(traced, "net", "make_fx")).graph
    return {"ops": made.num_ops, "framework_s": seconds.pop("trace"), "ours_s": seconds["build"], "parts": seconds}


def entries() -> dict[str, Any]:
    """The manifest: how many graphs it has, and the time to read it."""
    seconds: dict[str, float] = {}
    found = timed(seconds, "read", manifest.entries)
    return {"ops": sum(entry.ops for entry in found), "framework_s": 0.0, "ours_s": seconds["read"], "parts": seconds}


def fastest(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest of runs of one kind, by what is ours."""
    found = min(runs, key=lambda run: run["ours_s"])
    parts = {part: round(seconds, 3) for part, seconds in found["parts"].items()}
    return {"ops": found["ops"], "parts": parts} | {name: round(found[name], 3) for name in ("framework_s", "ours_s")}


def run(repeats: int, steps: int = STEPS, layers: int = LAYERS) -> dict[str, Any]:
    """All rows."""
    torch.set_num_threads(1)
    aten(1)
    with TemporaryDirectory() as folder:
        rows = {what: fastest([graphdef(path) for _ in range(repeats)]) for what, path in written(Path(folder), steps).items()}
    rows["aten"] = fastest([aten(layers) for _ in range(repeats)])
    rows["manifest"] = fastest([entries() for _ in range(repeats)])
    return {"repeats": repeats, "rows": rows, "provenance": results.provenance(HERE)}


def table(document: dict[str, Any]) -> str:
    """The figures as Markdown."""
    header = ["what", "ops", "the framework's own, s", "ours, s", "of that", "bar, s", "holds"]
    rows = []
    for what, row in document["rows"].items():
        parts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in row["parts"].items())
        holds = "yes" if row["ours_s"] < BARS_S[what] else "no"
        rows.append([what, f"{row['ops']:,}", f"{row['framework_s']:.2f}", f"{row['ours_s']:.3f}", parts, str(BARS_S[what]), holds])
    return results.markdown_table(header, rows)


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    output.benchmark(__doc__, HERE, run, table, repeats=3)


if __name__ == "__main__":
    main()
