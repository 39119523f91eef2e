"""Pictures: learning curves, and the step under the best placement of each graph and encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.cells import Cell
from experiments.encoders import single, transfer
from experiments.problems import problem_of
from gnnplace.placement import Placement
from gnnplace.report import picture
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.metrics import geometric_mean


def draw(part: str, found: dict[str, Cell], folder: Path) -> None:
    """The pictures of a part, in this folder."""
    if part == "transfer":
        _transfer(found, folder / "transfer.png")
        return
    _curves(found, folder / "single.png")
    for graph in single.GRAPHS:
        for encoder in single.ENCODERS:
            _step(found, graph, encoder, folder / f"{graph}-{encoder}.png")


def _curves(found: dict[str, Cell], path: Path) -> None:
    """One row a graph, one column an encoder: mean of the samples and best so far, a line a seed, and the controls."""
    figure, axes = pyplot.subplots(len(single.GRAPHS), len(single.ENCODERS), figsize=(11, 9), sharex=True, sharey="row", squeeze=False)
    for row, graph in zip(axes, single.GRAPHS, strict=True):
        heuristics = found[f"{graph}/controls"]["heuristics"]
        for axis, encoder in zip(row, single.ENCODERS, strict=True):
            for cell in _cells(found, f"{graph}/{encoder}/"):
                _line(axis, cell["curve"]["mean_ns"], "C0", "mean of samples")
                _line(axis, cell["curve"]["best_ns"], "C1", "best so far")
            _level(axis, min(time for time in heuristics.values() if time is not None), "-", "best heuristic")
            _level(axis, heuristics["gpu"], ":", "one GPU")
            axis.set(title=f"{graph}, --encoder {encoder}", yscale="log")
        row[0].set_ylabel("step time, ms")
    _finish(figure, axes, path)


def _transfer(found: dict[str, Cell], path: Path) -> None:
    """The samples' mean over the best single device, a line a seed: a moving geometric mean over as many updates as problems."""
    figure, axes = pyplot.subplots(1, len(transfer.VARIANTS), figsize=(16, 4), sharey=True, squeeze=False)
    for axis, variant in zip(axes[0], transfer.VARIANTS, strict=True):
        for cell in _cells(found, f"{variant}/"):
            width = max(1, cell["problems"] // transfer.BLOCK)
            known = [(place * transfer.BLOCK, value) for place, value in enumerate(cell["curve"]) if value is not None]
            smooth = [geometric_mean([value for _, value in known[max(0, end - width) : end]]) for end in range(1, len(known) + 1)]
            axis.plot([update for update, _ in known], smooth, linewidth=0.9)
        axis.set(title=variant, yscale="log", xlabel="update")
        axis.axhline(1, color="black", linestyle=":")
    axes[0][0].set_ylabel("mean of samples / best single device")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def _step(found: dict[str, Cell], graph: str, encoder: str, path: Path) -> None:
    """The step under the best placement of the first seed."""
    cell = found.get(f"{graph}/{encoder}/0")
    if cell is None or cell["placement"] is None:
        return
    problem = problem_of(graph, single.CLUSTER)
    policy = single.config(encoder, ()).policy
    placement = Placement(np.array(list(cell["placement"]), dtype=np.int32), policy.schedule)
    (result,) = simulate(problem, [placement], timeline=True)
    picture.write_picture(path, problem, placement, result)


def _cells(found: dict[str, Cell], start: str) -> list[Cell]:
    return [cell for name, cell in sorted(found.items()) if name.startswith(start)]


def _line(axis: Axes, times_ns: Sequence[float | None], colour: str, label: str) -> None:
    known = [(place * single.KEPT, time / 1e6) for place, time in enumerate(times_ns) if time is not None]
    if known:
        axis.plot(*zip(*known, strict=True), ".-", color=colour, markersize=2, linewidth=0.8, alpha=0.7, label=label)


def _level(axis: Axes, time_ns: int | None, style: str, label: str) -> None:
    if time_ns is not None:
        axis.axhline(time_ns / 1e6, color="black", linestyle=style, linewidth=0.9, label=label)


def _finish(figure: Figure, axes: np.ndarray, path: Path) -> None:
    """A legend of one line each, although every seed has the same label."""
    lines = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    axes[0][0].legend(lines.values(), lines.keys(), fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("update, those of the pre-training included")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
