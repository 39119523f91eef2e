"""Pictures of table 1: the learning curve of every policy, and the ops that those with the paper's encoder put on each device."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from experiments.cells import Cell


def draw(found: dict[str, Cell], graphs: tuple[str, ...], policies: tuple[str, ...], path: Path) -> None:
    """One row a graph: step times over updates of each policy, then mean ops of the samples on each device, of all but the first policy."""
    titles = [f"learning, {policy}" for policy in policies] + [f"ops per device, {policy}" for policy in policies[1:]]
    figure, axes = pyplot.subplots(len(graphs), len(titles), figsize=(4.3 * len(titles), 2.6 * len(graphs)), squeeze=False)
    for row, graph in zip(axes, graphs, strict=True):
        heuristics = [time for time in found[f"{graph}/heuristics"]["heuristics"].values() if time is not None]
        cells = [found.get(f"{graph}/{policy}/0") for policy in policies]
        for axis, cell in zip(row, (*cells, *cells[1:]), strict=True):
            axis.set_visible(cell is not None)
        for axis, cell in zip(row, cells, strict=False):
            if cell is not None:
                _learning(axis, cell, min(heuristics))
        for axis, cell in zip(row[len(policies) :], cells[1:], strict=True):
            if cell is not None:
                _ops(axis, cell)
        row[0].set_ylabel(f"{graph}\nstep time, ms")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
        axis.legend(fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("update")
    figure.tight_layout()
    figure.savefig(path, dpi=90)


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
