"""Cumulative distributions over test members, a panel a family: step time over that of Placeto optimised on the graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.placeto_families.table import (
    GREEDY,
    HEURISTIC,
    HIERARCHICAL,
    ONE_DEVICE,
    OWN,
    SAMPLED,
    UNTRAINED,
    Found,
    Times,
    over,
    times,
)
from gnnplace.report.picture import save

STYLES = {
    SAMPLED: ("C3", "-"), GREEDY: ("C3", "--"), UNTRAINED: ("C1", "-"), HIERARCHICAL: ("C0", "-"),
    "hill climbing": ("C2", "-"), "random": ("C7", "-"), HEURISTIC: ("black", "-"), ONE_DEVICE: ("black", ":"),
}  # fmt: skip


def draw(found: Found, families: Sequence[str], cluster: str, path: Path) -> None:
    """No picture where no policy is trained."""
    known = [family for family in families if f"{family}/{cluster}/placeto/0" in found]
    if not known:
        return
    figure = Figure(figsize=(4.2 * len(known), 4.6), layout="constrained")
    grid = figure.subplots(1, len(known), squeeze=False, sharey=True)[0]
    for family, axes in zip(known, grid, strict=True):
        panel(axes, times(found, family, cluster))
        axes.set_title(f"{family}, {cluster}", fontsize=10)
    grid[0].set_ylabel("share of test members and seeds")
    handles, shown = grid[0].get_legend_handles_labels()
    figure.legend(handles, shown, fontsize=8, loc="outside lower center", ncols=4, frameon=False)
    save(figure, path)


def panel(axes: Axes, of: Times) -> None:
    """A line a planner. Where nothing is feasible a line ends below 1."""
    for planner, (colour, line) in STYLES.items():
        if planner in of:
            ratios = np.sort([over(each, of[OWN][name][0]) for name, seeds in of[planner].items() for each in seeds])
            share = np.arange(1, len(ratios) + 1) / len(ratios)
            axes.step(ratios, share, where="post", color=colour, linestyle=line, label=planner, linewidth=1.4)
    axes.axvline(1, color="lightgrey", linewidth=0.9, zorder=0)
    axes.set_xlabel(f"step time over {OWN}", fontsize=9)
