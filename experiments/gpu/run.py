"""Checks of the executors on this machine: its GPUs, or its cores where it has none. Writes `results/<gpu>.json`, prints a table.

    python -m experiments.gpu.run [--parts executor overhead ...] [--limit SECONDS]

Each part runs in a process of its own with a time limit: one that crashes, hangs or lacks a package is reported, and the others run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from experiments import results
from experiments.gpu import table
from experiments.gpu.parts import PARTS, run
from gnnplace.execution.machine import gpus
from gnnplace.isolation.linux import die_with_parent

HERE = Path(__file__).resolve().parent
LIMITS_S = {"executor": 100, "overhead": 80, "profile": 60, "calibration": 80, "fidelity": 175, "training": 60, "tensorflow": 40}


def apart(name: str, limit_s: float) -> dict[str, Any]:
    """One part in its own process and session; nothing of it is left after its limit."""
    began = monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.gpu.run", "--here", name], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, _ = process.communicate(timeout=limit_s)
        lines = printed.splitlines()
        found = json.loads(lines[-1]) if lines and not process.returncode else _ended(process.returncode)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        found = {"status": "failed", "reason": f"not done after {limit_s:g} s"}
    return found | {"seconds": round(monotonic() - began, 1)}


def _ended(status: int) -> dict[str, Any]:
    return {"status": "failed", "reason": f"the process ended with status {status}"}


def _versions() -> dict[str, Any]:
    import torch

    return {"torch": torch.__version__, "cuda": torch.version.cuda}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the parts, writes the results and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="for each part, in place of its own")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--here", choices=tuple(PARTS), help="one part in this process: what the others are started with")
    chosen = parser.parse_args(arguments)
    if chosen.here:
        die_with_parent(os.getppid())
        print(json.dumps(run(chosen.here)))
        return
    found = gpus()
    document: dict[str, Any] = {"gpus": [gpu._asdict() for gpu in found], "versions": _versions(), "parts": {}}
    for name in chosen.parts:
        document["parts"][name] = apart(name, chosen.limit or LIMITS_S[name])
        print(f"{name}: {document['parts'][name]['status']}, {document['parts'][name]['seconds']} s", file=sys.stderr, flush=True)
    document["provenance"] = results.provenance(HERE)
    stem = re.sub(r"[^a-z0-9]+", "-", found[0].name.lower()).strip("-") if found else "cpu"
    results.save(chosen.results / f"{stem}.json", document)
    print(table.markdown(document))


if __name__ == "__main__":
    main()
