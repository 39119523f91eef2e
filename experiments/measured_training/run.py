"""Does training on real step times find a placement that measures faster than the one that the simulator would choose?

    python -m experiments.measured_training.run                  # what is missing, then the figures
    python -m experiments.measured_training.run --figures        # of what there is

Nothing here but the commands that a user would give, one after another, on the cores of this machine; a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from experiments import results

HERE = Path(__file__).resolve().parent
WORKLOADS = ("gru_language", "deep_speech_2")
SIMULATED = ("--training.updates=60",)
MEASURED = ("--evaluate=measured", "--training.warm_start.updates=0", "--training.updates=10", "--training.placements=8")
PROTOCOLS = ("paper", "steady")  # of each placement five steps, or thirty


def trained(workload: str, protocol: str, folder: Path) -> dict[str, Any]:
    """A policy trained on simulated steps, tuned on measured ones, and what its best placement measures beside the simulator's choice."""
    step, machine, costs = f"experiments.fidelity.torch_workloads:{workload}", folder / "here.json", folder / "costs.json"
    if not costs.exists():
        _gnnplace("calibrate", step, "-o", machine)
        _gnnplace("profile", step, "--cluster", machine, "-o", costs)
    what = ("--problems", json.dumps([[step, str(machine)]]), "--costs", json.dumps([str(costs)]))
    common = ("train", "--policy", "unit-placer", *what, "--runs", folder)
    simulated = _trained(folder, "simulated", *common, *SIMULATED)
    tuning = (*MEASURED, f"--measured.protocol={protocol}", "--init", simulated / "checkpoint.safetensors")
    measured = _trained(folder, protocol, *common, *tuning)
    (found,) = json.loads((measured / "measured.json").read_text())
    return found | {"provenance": results.provenance(HERE)}


def _trained(folder: Path, name: str, *arguments: str | Path) -> Path:
    """The folder of a run of that name, which is started here, or goes on."""
    run = folder / f"{name}-1"  # the first of its name
    _gnnplace(*(("train", "--resume", run) if run.exists() else (*arguments, "--name", name)))
    return run


def _gnnplace(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "gnnplace", *map(str, arguments)], check=True)


def table(found: dict[str, Any]) -> str:
    """A line for each workload."""
    header = ["workload, protocol", "measured", "policy's best, ms", "simulator's choice, ms", "simulator's / policy's", "verdict"]
    rows = []
    for name, each in found.items():
        times = [f"{each[key]['median'] / 1e6:.1f}" if each[key] else "" for key in ("policy_ns", "simulator_ns")]
        faster = "{median:.3f} [{low:.3f}, {high:.3f}]".format(**each["faster"]) if each["faster"] else ""
        rows.append([name, str(each["candidates"]), *times, faster, each["verdict"]])
    return results.markdown_table(header, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--figures", action="store_true", help="train nothing")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--runs", type=Path, help="where runs are kept, and found again; a temporary folder unless given")
    chosen = parser.parse_args(arguments)
    path = chosen.results / "measured_training.json"
    found = results.load(path)
    with tempfile.TemporaryDirectory() as temporary:
        for workload, protocol in [] if chosen.figures else product(chosen.workloads, PROTOCOLS):
            if (name := f"{workload}, {protocol}") not in found:
                folder = (chosen.runs or Path(temporary)) / workload
                folder.mkdir(parents=True, exist_ok=True)
                found[name] = trained(workload, protocol, folder)
                results.save(path, found)
    print(table(found))


if __name__ == "__main__":
    main()
