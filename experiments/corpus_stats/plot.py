"""Pictures of the corpus: how large and how wide its graphs are, what their work is, and how much room there is, by family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from experiments.cells import Cell

NAME = (0.7, 0.012)  # how much of the axes' tenfold steps a name takes


def draw(
    found: Mapping[str, Cell], families: Mapping[str, Sequence[str]], room: Mapping[str, list[float]], parts: Sequence[str], path: Path
) -> None:
    """Three panels side by side; families in the order of `families`, `room` by family."""
    figure, (sizes, work, gain) = pyplot.subplots(1, 3, figsize=(19, 2.5 + 0.3 * len(families)), width_ratios=(1.3, 1, 1))
    _sizes(sizes, found)
    rows = np.arange(len(families))
    left = np.zeros(len(families))
    for part in parts:
        share = np.array([np.mean([found[name]["parts"][part] for name in names]) for names in families.values()])
        work.barh(rows, 100 * share, left=100 * left, label=part)
        left += share
    work.set(xlabel="work by kind, %", xlim=(0, 100))
    work.legend(fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.02))
    gain.boxplot([[100 * value for value in room[family]] for family in families], positions=rows, orientation="horizontal", widths=0.6)
    gain.set(title="room over the best heuristic, all presets, %", xlim=(0, None))
    for axes in (work, gain):
        axes.set_yticks(rows, families, fontsize=8)
        axes.set_ylim(len(families) - 0.4, -0.6)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def _sizes(axes: Axes, found: Mapping[str, Cell]) -> None:
    """Ops across, work / critical path up, a colour for each lineage; names where there is room for them, widest first."""
    named: list[tuple[float, float]] = []
    colours = pyplot.get_cmap("tab20").colors
    for number, lineage in enumerate(sorted({cell["lineage"] for cell in found.values()})):
        members = {name: cell for name, cell in found.items() if cell["lineage"] == lineage}
        axes.scatter(
            [cell["ops"] for cell in members.values()],
            [cell["parallelism"] for cell in members.values()],
            s=30,
            color=colours[number],
            label=lineage,
        )
    axes.set(xscale="log", yscale="log", xlabel="ops", ylabel="work / critical path", title="sizes and widths")
    for name, cell in sorted(found.items(), key=lambda item: -item[1]["parallelism"]):
        place = float(np.log10(cell["ops"])), float(np.log10(cell["parallelism"]))
        if all(abs(place[0] - x) > NAME[0] or abs(place[1] - y) > NAME[1] for x, y in named):
            axes.annotate(name, (cell["ops"], cell["parallelism"]), fontsize=6, xytext=(3, 3), textcoords="offset points")
            named.append(place)
    axes.margins(x=0.15)  # names to the right of the largest graphs
    axes.legend(fontsize=7)
