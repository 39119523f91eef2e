"""What does an answer cost? Processor seconds of `gnnplace place` right after an installation and again, of `gnnplace simulate` of a small
graph, and of `--help`; and what the installation itself costs, and PyTorch alone.

    python -m benchmarks.start.run [--repeats 3] [--name start] [--json]

`place net.py:step` is the README's command, on a network of three layers; it has so few placements that all are tried. `deep.py:step` has
thirteen layers, so that planners and searches are asked. What is installed is the last commit, in a folder of its own, by pip; other
packages are those of the environment. `checkout` is a package without machine code, as an editable install is. Processor time is that of
all processes, user and system. Runs are interleaved, each turn with cache folders of its own; medians. Wall-clock depends on who else uses
the machine.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

from experiments import output, results
from gnnplace.isolation import python
from gnnplace.isolation.linux import inherit_orphans

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MACHINE = ("--cluster", "2x rtx-4090, pcie4", "--granularity", "module", "-o", "placement.json")
NET, DEEP = ("place", "net.py:step", *MACHINE), ("place", "deep.py:step", *MACHINE)
SMALL = ("dlrm", "--cluster", "k40-2")


class Row(NamedTuple):
    """A command of Python's, its bar, and whose package it imports: what was installed, or a copy of the checkout's."""

    command: tuple[str, ...]
    bar_s: float | None = None
    package: Literal["installed", "sources"] = "installed"


def ours(*command: str) -> tuple[str, ...]:
    """A command of gnnplace."""
    return ("-m", "gnnplace", *command)


INSTALL = ("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", "installed", "./sources")
ROWS = {  # in turn
    "pip install, of gnnplace alone": Row(INSTALL),
    "PyTorch alone: `trace.py`": Row(("trace.py",)),
    "place net.py:step, first": Row(ours(*NET), 15.0),
    "place net.py:step, again": Row(ours(*NET), 4.0),
    "place deep.py:step, first": Row(ours(*DEEP), 15.0),
    "place deep.py:step, again": Row(ours(*DEEP), 4.0),
    "simulate dlrm": Row(ours("simulate", *SMALL, "--placement", "small.json"), 1.0),
    "place --help": Row(ours("place", "--help"), 0.5),
    "train --help": Row(ours("train", "--help"), 0.5),
    "place net.py:step, first, in a checkout": Row(ours(*NET), None, "sources"),
    "place deep.py:step, first, in a checkout": Row(ours(*DEEP), None, "sources"),
}
LAYERS = {"net.py": 1, "deep.py": 11}  # hidden ones but the first
CODE = """
import torch
from torch import nn
import gnnplace as gp

def step():
    hidden = [part for _ in range({layers}) for part in (nn.Linear(4096, 4096), nn.ReLU())]
    net = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), *hidden, nn.Linear(4096, 10))
    batch = torch.randn(64, 512), torch.zeros(64, dtype=torch.long)
    return gp.TorchStep(net, lambda net, x, y: nn.functional.cross_entropy(net(x), y), batch)
"""
TRACE = """
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

with FakeTensorMode():
    net = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
    names, (x, y) = [name for name, _ in net.named_parameters()], (torch.randn(64, 512), torch.zeros(64, dtype=torch.long))

    def step(*parameters):
        logits = torch.func.functional_call(net, dict(zip(names, parameters)), (x,))
        return torch.autograd.grad(nn.functional.cross_entropy(logits, y), parameters)

    make_fx(step)(*net.parameters())
"""


def timed(row: Row, folder: Path) -> dict[str, float]:
    """Processor and wall-clock seconds of a command in a folder, where machine code is kept apart for each package and network."""
    cache = folder / "-".join(["cache", row.package, *(file for file in LAYERS if f"{file}:step" in row.command)])
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = python.environment(PYTHONPATH=str(folder / row.package), XDG_CACHE_HOME=str(cache), NUMBA_CACHE_DIR="")
    done = subprocess.run([sys.executable, "-P", *row.command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    wall = time.monotonic() - began
    with suppress(ChildProcessError):  # processes that end after the command (CP-SAT's) count, too
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"processor_s": processor, "wall_s": wall}


def prepare(folder: Path) -> None:
    """Writes the networks, and the sources as the last commit has them."""
    for file, layers in LAYERS.items():
        (folder / file).write_text(CODE.format(layers=layers))
    (folder / "trace.py").write_text(TRACE)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as sources:
        sources.extractall(folder / "sources", filter="data")


def run(repeats: int) -> dict[str, Any]:
    """All rows."""
    inherit_orphans()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ROWS}
    for _ in range(repeats):
        with TemporaryDirectory() as name:
            prepare(folder := Path(name))
            for what, row in ROWS.items():
                if what.startswith("simulate"):
                    timed(Row(ours("place", *SMALL, "--planner", "gpu", "-o", "small.json")), folder)
                runs[what].append(timed(row, folder))
    return {"repeats": repeats, "rows": runs, "provenance": results.provenance(HERE)}


def table(document: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = []
    for name, runs in document["rows"].items():
        processor, wall = (statistics.median(each[what] for each in runs) for what in ("processor_s", "wall_s"))
        bar = ROWS[name].bar_s
        held = ["", ""] if bar is None else [str(bar), "yes" if processor <= bar else "no"]
        rows.append([name, f"{processor:.2f}", f"{wall:.2f}", *held])
    return results.markdown_table(["command", "processor, s", "wall-clock, s", "bar (processor), s", "holds"], rows)


def main() -> None:
    output.benchmark(__doc__, HERE, run, table, repeats=3)


if __name__ == "__main__":
    main()
