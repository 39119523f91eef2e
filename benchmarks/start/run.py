"""What does an answer cost? Processor seconds of `gnnplace place` with an empty cache folder and with a full one, of `gnnplace simulate` of
a small graph, and of `--help`.

    python -m benchmarks.start.run [--repeats 3] [--name start] [--json]

`place net.py:step` is the README's command, on a network of three layers; it has so few placements that all are tried. `deep.py:step` has
thirteen layers, so that planners and searches are asked. Processor time is that of all processes, user and system. Runs are interleaved,
each network's cold one first, each turn with cache folders of its own; medians. Wall-clock depends on who else uses the machine.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments import output
from gnnplace.isolation import python
from gnnplace.isolation.linux import inherit_orphans
from gnnplace.report import results

HERE = Path(__file__).resolve().parent
MACHINE = ("--cluster", "2x rtx-4090, pcie4", "--granularity", "module", "-o", "placement.json")
NET, DEEP = ("place", "net.py:step", *MACHINE), ("place", "deep.py:step", *MACHINE)
SMALL = ("dlrm", "--cluster", "k40-2")
ROWS = {  # the command and its bar, in turn
    "place net.py:step, cold": (NET, 15.0),
    "place net.py:step, warm": (NET, 4.0),
    "place deep.py:step, cold": (DEEP, 15.0),
    "place deep.py:step, warm": (DEEP, 4.0),
    "simulate dlrm": (("simulate", *SMALL, "--placement", "small.json"), 1.0),
    "place --help": (("place", "--help"), 0.5),
    "train --help": (("train", "--help"), 0.5),
}
FILES = {"net.py": 1, "deep.py": 11}  # hidden layers but the first
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


def timed(command: tuple[str, ...], folder: Path) -> dict[str, float]:
    """Processor and wall-clock seconds of a command of gnnplace, whose machine code is kept in the folder, that of `net.py` apart."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    cache = folder / ("small" if "net.py:step" in command else "cache")
    environment = python.environment(XDG_CACHE_HOME=str(cache), NUMBA_CACHE_DIR="")
    whole = python.command("-m", "gnnplace", *command)
    done = subprocess.run(whole, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    wall = time.monotonic() - began
    with suppress(ChildProcessError):  # processes that end after the command (CP-SAT's) count, too
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"processor_s": processor, "wall_s": wall}


def run(repeats: int) -> dict[str, Any]:
    """All rows."""
    inherit_orphans()
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ROWS}
    for _ in range(repeats):
        with TemporaryDirectory() as name:
            folder = Path(name)
            for file, layers in FILES.items():
                (folder / file).write_text(CODE.format(layers=layers))
            for row, (command, _bar) in ROWS.items():
                if row.startswith("simulate"):
                    timed(("place", *SMALL, "--planner", "gpu", "-o", "small.json"), folder)
                runs[row].append(timed(command, folder))
    return {"repeats": repeats, "rows": runs, "provenance": results.provenance(HERE)}


def table(document: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = []
    for name, runs in document["rows"].items():
        processor, wall = (statistics.median(each[what] for each in runs) for what in ("processor_s", "wall_s"))
        _, bar = ROWS[name]
        rows.append([name, f"{processor:.2f}", f"{wall:.2f}", str(bar), "yes" if processor <= bar else "no"])
    return results.markdown_table(["command", "processor, s", "wall-clock, s", "bar (processor), s", "holds"], rows)


def main() -> None:
    output.benchmark(__doc__, HERE, run, table, repeats=3)


if __name__ == "__main__":
    main()
