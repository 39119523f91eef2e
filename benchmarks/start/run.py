"""What does the first answer cost? Processor seconds of `gnnplace place net.py:step` with an empty cache folder and with a full one.

    python -m benchmarks.start.run [--repeats 3] [--name start] [--json]

The command is that of the README, on a network of a PyTorch file. Its processor time is that of all its processes, user and system. Runs
are interleaved, cold before warm, each pair with a cache folder of its own; medians. Wall-clock depends on who else uses the machine.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments import output
from gnnplace.isolation import python
from gnnplace.report import results

HERE = Path(__file__).resolve().parent
COMMAND = ("-m", "gnnplace", "place", "net.py:step", "--cluster", "2x rtx-4090, pcie4", "--granularity", "module")
BARS_S = {"cold": 15.0, "warm": 4.0}
NET = """
import torch
from torch import nn
import gnnplace as gp

def step():
    net = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
    batch = torch.randn(64, 512), torch.zeros(64, dtype=torch.long)
    return gp.TorchStep(net, lambda net, x, y: nn.functional.cross_entropy(net(x), y), batch)
"""


def placed(folder: Path, cache: Path) -> dict[str, float]:
    """Processor and wall-clock seconds of the command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = python.environment(XDG_CACHE_HOME=str(cache), NUMBA_CACHE_DIR="")
    done = subprocess.run(
        python.command(*COMMAND, "-o", "placement.json"), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"processor_s": processor, "wall_s": time.monotonic() - began}


def run(repeats: int) -> dict[str, Any]:
    """Both rows."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in BARS_S}
    for _ in range(repeats):
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "net.py").write_text(NET)
            for row in runs.values():
                row.append(placed(folder, folder / "cache"))
    return {"repeats": repeats, "rows": runs, "provenance": results.provenance(HERE)}


def table(document: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = []
    for name, runs in document["rows"].items():
        processor, wall = (statistics.median(each[what] for each in runs) for what in ("processor_s", "wall_s"))
        rows.append([name, f"{processor:.1f}", f"{wall:.1f}", str(BARS_S[name]), "yes" if processor <= BARS_S[name] else "no"])
    return results.markdown_table(["cache folder", "processor, s", "wall-clock, s", "bar (processor), s", "holds"], rows)


def main() -> None:
    output.benchmark(__doc__, HERE, run, table, repeats=3)


if __name__ == "__main__":
    main()
