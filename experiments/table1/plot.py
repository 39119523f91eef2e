"""Pictures of table 1: learning curves of both policies, and the ops that the paper's policy puts on each device."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from experiments.cells import Cell

COLUMNS = ("learning, gnn", "learning, paper", "ops per device, paper")


def draw(found: dict[str, Cell], graphs: tuple[str, ...], path: Path) -> None:
    """One row a graph: step times of samples over updates (gnn, paper), and ops on each device (paper), mean of the samples."""
    figure, axes = pyplot.subplots(len(graphs), len(COLUMNS), figsize=(13, 2.6 * len(graphs)), squeeze=False)
    for row, graph in zip(axes, graphs, strict=True):
        heuristics = [time for time in found[f"{graph}/heuristics"]["heuristics"].values() if time is not None]
        cells = {policy: found[f"{graph}/{policy}/0"] for policy in ("gnn", "paper") if f"{graph}/{policy}/0" in found}
        for axis, cell in zip(row, cells.values(), strict=False):
            _learning(axis, cell, min(heuristics))
        if "paper" in cells:
            _ops(row[2], cells["paper"])
        for axis in row[1:]:
            axis.set_visible("paper" in cells)
        row[0].set_ylabel(f"{graph}\nstep time, ms")
    for axis, title in zip(axes[0], COLUMNS, strict=True):
        axis.set_title(title)
    axes[0][0].legend(fontsize=7)
    axes[0][2].legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("update")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _learning(axis: Axes, cell: Cell, heuristic_ns: int) -> None:
    for name, label in (("/mean_ns", "mean of samples"), ("/greedy_ns", "greedy"), ("/best_ns", "best so far")):
        points = [(update, time / 1e6) for update, time in enumerate(cell["curve"][name]) if time is not None]
        axis.plot(*zip(*points, strict=True), label=label, linewidth=0.9)
    axis.axhline(heuristic_ns / 1e6, color="black", linestyle=":", linewidth=0.9, label="best heuristic")
    axis.set_yscale("log")


def _ops(axis: Axes, cell: Cell) -> None:
    for device, counts in cell["ops"].items():
        points = [(update, count) for update, count in enumerate(counts) if count is not None]
        axis.plot(*zip(*points, strict=True), label=device, linewidth=0.9)
