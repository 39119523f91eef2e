"""Pictures of first transfer: samples against the teachers over training, and greedy placements of what was held out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from experiments.cells import Cell

WINDOW = 15  # updates of a moving median: each update is of one problem


def draw(found: dict[str, Cell], held_out: Mapping[str, Sequence[tuple[str, str]]], path: Path) -> None:
    """One row a fold: training curves of every seed, and step times of held-out problems relative to the best heuristic."""
    figure, axes = pyplot.subplots(len(held_out), 2, figsize=(13, 3.6 * len(held_out)), squeeze=False)
    for row, (fold, problems) in zip(axes, held_out.items(), strict=True):
        cells = [cell for name, cell in sorted(found.items()) if name.startswith(f"{fold}/gnn/")]
        for seed, cell in enumerate(cells):
            _training(row[0], cell["curve"], f"seed {seed}")
        for number, (graph, cluster) in enumerate(problems):
            _transfer(row[1], cells, f"{graph}.{cluster}", found[f"others/{graph}.{cluster}"]["heuristic_ns"], number)
        row[0].set_title(f"without {fold} graphs: mean of samples / best heuristic, training problems")
        row[1].set_title("held out, greedy / best heuristic, median of seeds")
        for axis in row:
            axis.axhline(1, color="black", linestyle=":", linewidth=0.9)
            axis.set_yscale("log")
        row[0].legend(fontsize=7)
        row[1].legend(fontsize=5, ncol=2, loc="upper right")
    for axis in axes[-1]:
        axis.set_xlabel("update")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _training(axis: Axes, curve: Sequence[float | None], label: str) -> None:
    known = [(update, ratio) for update, ratio in enumerate(curve) if ratio is not None]
    smooth = [statistics.median(ratio for _, ratio in known[max(0, i + 1 - WINDOW) : i + 1]) for i in range(len(known))]
    axis.plot([update for update, _ in known], smooth, linewidth=0.9, label=label)


def _transfer(axis: Axes, cells: Sequence[Cell], label: str, heuristic_ns: int, number: int) -> None:
    """Untrained, on the way, and at the end; an infeasible placement is left out."""
    stages = [(0, [cell["untrained"][label] for cell in cells])]
    stages += [(int(update), [cell["on the way"][update][label] for cell in cells]) for update in cells[0]["on the way"]]
    stages.append((len(cells[0]["curve"]), [cell["trained"][label]["greedy_ns"] for cell in cells]))
    points = [(update, statistics.median(times) / heuristic_ns) for update, times in stages if None not in times]
    style = ("-", "--", ":")[number % 3]
    axis.plot(*zip(*points, strict=True), style, marker=".", color=f"C{number // 3}", linewidth=0.9, label=label)
