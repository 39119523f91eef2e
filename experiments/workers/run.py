"""The paper's curve of 1 against 4 workers, as 1 against 2 processes: how much sooner does training reach the same quality?

    python -m experiments.workers.run [--seeds N] [--updates N]     # what is missing, then the table
    python -m experiments.workers.run --show                        # of what there is

Both train with the same global batch, one thread of PyTorch and of the simulator a process, one run after another in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments import output, results
from experiments.cells import Cell
from gnnplace.config import files
from gnnplace.training.run.mlflow import STEP_METRIC
from gnnplace.training.run.mlflow_store import database

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
PROCESSES, ENCODER = (1, 2), "gnn"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def common(chosen: argparse.Namespace) -> tuple[str, ...]:
    """The options that both numbers of processes share."""
    problem = json.dumps([[chosen.graph, chosen.cluster]])
    return (f"--problems={problem}", f"--training.updates={chosen.updates}", "--training.threads=1", "--trainer.accelerator=cpu")


def trained(chosen: argparse.Namespace, processes: int, seed: int) -> Cell:
    """One run of `train.py`: when each update ended, in seconds from the first one's beginning, and the best step time until then."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"runs": folder, "trainer.devices": processes, "trainer.strategy": "ddp" if processes > 1 else "auto"}
        words = (*common(chosen), f"--seed={seed}", *(f"--{name}={value}" for name, value in options.items()))
        command = [sys.executable, "train.py", "--encoder", ENCODER, "--json", "--quiet", *words]
        subprocess.run(command, cwd=REPOSITORY, env=os.environ | ONE_THREAD, check=True)
        return curve(Path(folder), f"{chosen.graph}.{chosen.cluster}")


def curve(runs: Path, label: str) -> Cell:
    """The only run of a folder of runs, as MLflow has it: reinforcement alone; the time before it is kept as `before_s`."""
    from mlflow import MlflowClient

    client = MlflowClient(database(runs))
    (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    begins = min(client.get_metric_history(run.info.run_id, STEP_METRIC), key=lambda metric: metric.step)
    began_ms = begins.timestamp - 1000 * begins.value
    best = sorted(client.get_metric_history(run.info.run_id, f"{label}/best_ns"), key=lambda metric: metric.step)
    first = best[0].timestamp
    return {
        "before_s": (first - began_ms) / 1000, "ended_s": [(metric.timestamp - first) / 1000 for metric in best],
        "best_ns": [metric.value for metric in best],
    }  # fmt: skip


def updates_per_s(cell: Cell) -> float:
    """Updates a second, the first left out: it ends where the clock begins."""
    return (len(cell["ended_s"]) - 1) / float(cell["ended_s"][-1])


def reached_s(cell: Cell, quality_ns: float) -> float | None:
    """When a run is as good as this, None where it never is."""
    return next((ended for ended, best in zip(cell["ended_s"], cell["best_ns"], strict=True) if best <= quality_ns), None)


HEADER = ["seed", "processes", "updates/s", "best after all updates, ms", "seconds to the single process's quality", "times as fast"]


def table(found: dict[str, Cell], after: float) -> str:
    """A line a run. The quality is what the single process of this seed has after the share `after` of its updates."""
    lines, gains = [], []
    for seed in sorted({name.split("/")[0] for name in found if name.endswith("/1")}, key=int):
        single = found[f"{seed}/1"]
        quality_ns = single["best_ns"][max(0, int(after * len(single["best_ns"])) - 1)]
        single_s = reached_s(single, quality_ns)
        for number in (each for each in PROCESSES if f"{seed}/{each}" in found):
            cell = found[f"{seed}/{number}"]
            needed_s = reached_s(cell, quality_ns)
            gain = single_s / needed_s if single_s and needed_s else None
            gains += [gain] if gain is not None and number > 1 else []
            lines.append([seed, str(number), f"{updates_per_s(cell):.3f}", f"{cell['best_ns'][-1] / 1e6:.1f}", _or(needed_s), _or(gain)])
    median = f"\nMedian over seeds: {statistics.median(gains):.2f} times as fast.\n" if gains else ""
    return results.markdown_table(HEADER, lines) + median


def _or(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=200, help="updates of reinforcement")
    parser.add_argument("--after", type=float, default=0.7, help="share of them after which the single process's quality is the mark")
    parser.add_argument("--graph", default="nmt-4")
    parser.add_argument("--cluster", default="k40-4")
    parser.add_argument("--show", action="store_true", help="train nothing: the table of what is there")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    chosen = parser.parse_args(arguments)
    path = chosen.results / "workers.json"
    settings = files.to_document(files.read_settings(overrides=common(chosen), encoder=ENCODER))
    document = results.load(path) or {"settings": settings, "cells": {}}
    if document["settings"] != settings and not chosen.show:
        parser.error(f"{path}: holds results of other settings; move it away to begin anew")
    found: dict[str, Cell] = document["cells"]
    for seed in range(0 if chosen.show else chosen.seeds):
        for processes in PROCESSES if seed % 2 == 0 else reversed(PROCESSES):
            if (name := f"{seed}/{processes}") not in found:
                found[name] = trained(chosen, processes, seed) | {"provenance": results.provenance(HERE)}
                results.save(path, document)
    output.show(table(found, chosen.after), document, chosen, path.with_suffix(".md"))


if __name__ == "__main__":
    main()
