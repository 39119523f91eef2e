"""Draws a graph before placement: its parallelism over time, and when each of its layers could run.

Every op starts when its inputs are ready and takes its time on its fastest device; transfers are free. The width of the
picture is the critical path. The mean height of its upper part is work / critical path, an upper bound on the speed-up
by several devices.
"""

from __future__ import annotations

import os

import numpy as np
from jaxtyping import Float, Int64
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from gnnplace.graph import ComputationGraph
from gnnplace.report.picture import bars, check_ending, coloured_phases, label, name_colours, save
from gnnplace.schedules.paths import longest_paths

INTERVALS = 700
MOST_NAMES = 40
HALF = 0.45  # half the height of a layer's lines, in rows


def write_graph_picture(
    path: str | os.PathLike[str], graph: ComputationGraph, time_ns: Int64[np.ndarray, " ops"]
) -> None:
    """Draws a graph whose op i takes `time_ns[i]`, in the format of the extension of `path` (see `picture.FORMATS`).

    Raises ValueError for another extension, OSError if the file can't be written.
    """
    check_ending(path)
    start_ns = longest_paths(graph, time_ns).head_ns
    figure = Figure(figsize=(14, 9), layout="tight")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3))
    draw_parallelism(above, graph, start_ns, start_ns + time_ns)
    draw_layers(below, graph, start_ns, start_ns + time_ns)
    width = int((start_ns + time_ns).max())
    work = f"work / critical path {time_ns.sum() / width:.2f}"
    above.set_title(
        f"{label(graph.name)}: {graph.num_ops:,} ops, critical path {width / 1e6:,.3f} ms, {work}",
        loc="left",
        fontsize=10,
    )
    save(figure, path)


def draw_parallelism(
    axes: Axes, graph: ComputationGraph, start_ns: Int64[np.ndarray, " ops"], end_ns: Int64[np.ndarray, " ops"]
) -> None:
    """Draws the mean number of concurrent ops in each interval, stacked by phase."""
    edges = np.linspace(0, int(end_ns.max()), INTERVALS + 1)
    phases, floor = coloured_phases(graph), np.zeros(INTERVALS)
    for phase in phases:
        top = floor + at_once(start_ns[phase.ops], end_ns[phase.ops], edges)
        axes.stairs(top, edges / 1e6, baseline=floor, fill=True, color=phase.colour)
        floor = top
    name_colours(axes, [(phase.colour, phase.name) for phase in phases])
    axes.set(ylabel="ops at once", ylim=(0, None))


def draw_layers(
    axes: Axes, graph: ComputationGraph, start_ns: Int64[np.ndarray, " ops"], end_ns: Int64[np.ndarray, " ops"]
) -> None:
    """Draws a row for each layer, in order of earliest start, with a line for each phase.

    Ops without a layer come last. Of many layers only `MOST_NAMES` are labelled.
    """
    names = (*graph.layer.values, "no layer")
    layer = np.where(graph.layer.index < 0, len(names) - 1, graph.layer.index)
    first = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first, layer, start_ns)
    first[-1] = np.iinfo(np.int64).max
    order = np.argsort(first, kind="stable")[: len(np.unique(layer))]
    row = np.zeros(len(names), dtype=np.int64)
    row[order] = np.arange(len(order))
    phases = coloured_phases(graph)
    lines = np.linspace(-HALF, HALF, len(phases) + 1)
    for phase, low, high in zip(phases, lines, lines[1:], strict=False):
        drawn = bars(start_ns[phase.ops], end_ns[phase.ops], row[layer[phase.ops]], low, high)
        axes.add_collection(PolyCollection(drawn, facecolors=phase.colour, edgecolors=phase.colour, linewidths=0.3))
    shown = np.unique(np.linspace(0, len(order) - 1, MOST_NAMES).round().astype(int))
    axes.set_yticks(shown, [label(names[number]) for number in order[shown]], fontsize=7)
    axes.set(xlim=(0, int(end_ns.max()) / 1e6), ylim=(len(order) - 0.5, -0.5), xlabel="ms, transfers free")


def at_once(
    start_ns: Int64[np.ndarray, " ops"], end_ns: Int64[np.ndarray, " ops"], edges_ns: Float[np.ndarray, " edges"]
) -> Float[np.ndarray, " intervals"]:
    """The mean number of concurrent ops in each interval between edges."""
    return np.diff(_passed(start_ns, edges_ns) - _passed(end_ns, edges_ns)) / np.diff(edges_ns)


def _passed(since_ns: Int64[np.ndarray, " ops"], edges_ns: Float[np.ndarray, " edges"]) -> Float[np.ndarray, " edges"]:
    """For each edge, the sum of its distances in ns to all times before it."""
    ordered = np.sort(since_ns)
    before = np.searchsorted(ordered, edges_ns)
    return before * edges_ns - np.append(0, np.cumsum(ordered))[before]
