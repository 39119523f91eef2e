"""Learning curves, a picture a graph: the best so far and, of policies and random search, the mean, against evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.cells import Cell
from experiments.planners import table
from experiments.planners.table import SEARCHED
from gnnplace.report.picture import save


def draw(found: dict[str, Cell], graph: str, clusters: Sequence[str], planners: Sequence[str], path: Path) -> None:
    """A column a cluster and budget of which there is something, of its first seed; no picture where there is nothing."""
    budgets = sorted({int(name.split("/")[3]) for name in found if name.startswith(f"{graph}/") and name.count("/") == 4})
    columns = [
        ((graph, cluster), budget)
        for budget in budgets
        for cluster in clusters
        if any(table.cells_of(found, (graph, cluster), planner, budget) for planner in planners)
    ]
    if not columns:
        return
    figure = Figure(figsize=(6 * len(columns) + 2.5, 7.5), layout="tight")
    grid = figure.subplots(2, len(columns), squeeze=False, sharex="col")
    for (problem, budget), axes in zip(columns, grid.T, strict=True):
        _column(found, problem, budget, planners, *axes)
    lines = {line.get_label(): line for axes in grid[0] for line in axes.get_lines() if line.get_label() in planners}
    shown = [planner for planner in planners if planner in lines]
    grid[0][-1].legend([lines[planner] for planner in shown], shown, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    save(figure, path)


def _column(found: dict[str, Cell], problem: tuple[str, str], budget: int, planners: Sequence[str], best: Axes, mean: Axes) -> None:
    for number, planner in enumerate(planners):
        cells = [cell for cell in table.cells_of(found, problem, planner, budget) if "curve" in cell]
        style = {"color": colormaps["tab20"](number % 20), "linewidth": 1.1, "linestyle": "--" if planner in SEARCHED else "-"}
        for cell in cells[:1]:
            _line(best, cell["curve"], "best_ns", label=planner, **style)
            if planner not in SEARCHED:
                _line(mean, cell["curve"], "mean_ns", **style)
    for axes in (best, mean):
        axes.axhline(table.heuristic(found, problem)[1] / 1e6, color="black", linestyle=":", linewidth=0.9)
        axes.axhline(table.bound_ns(found, problem) / 1e6, color="grey", linestyle=":", linewidth=0.9)
        axes.set_yscale("log")
    best.set_title(f"{', '.join(problem)}: best so far (dotted: best heuristic, bound)", fontsize=9)
    mean.set_title("mean of what was evaluated since the point before", fontsize=9)
    best.set_ylabel("ms")
    mean.set(xlabel="evaluations", ylabel="ms")


def _line(axes: Axes, curve: Cell, figure: str, **style: object) -> None:
    points = [(at, each / 1e6) for at, each in zip(curve["evaluations"], curve[figure], strict=True) if each is not None]
    axes.plot([at for at, _ in points], [each for _, each in points], **style)  # type: ignore[arg-type]
