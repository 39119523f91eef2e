"""A simulated step as a picture, and the parts that pictures share: file formats, colours of phases, bars over time."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.complaints import printable
from gnnplace.formats import atomic
from gnnplace.graph import NONE, PHASES, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report import step_words
from gnnplace.report.micro_batch_colours import UNNUMBERED, coloured_copies, passes
from gnnplace.result import StepResult, Timeline

FORMATS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}  # metadata without dates, so that bytes are reproducible
MOST_OF_A_NAME = 60  # characters
NUMBERS = 80  # at most, side by side
OPS, TRANSFERS = (-0.4, 0.25), (0.27, 0.4)  # heights of ops and transfers relative to their device's line


def write_picture(path: str | os.PathLike[str], problem: Problem, placement: Placement, result: StepResult) -> None:
    """Draws a simulated step that has a timeline, in the format of the extension of `path` (see `picture.FORMATS`).

    Raises ValueError for another extension or without a timeline, OSError if the file can't be written.
    """
    check_ending(path)
    if result.timeline is None or result.step_time_ns is None:
        raise ValueError(f"{path}: nothing to draw: {result.infeasible or 'simulated without a timeline'}")
    figure = Figure(figsize=(14, 1.4 + 0.8 * problem.num_devices), layout="tight")
    axes = figure.add_subplot()
    draw(axes, problem, placement, result.timeline)
    fused = placement.fusion is not None
    bound = f"bound {lower_bound(problem, fused) / 1e6:,.3f} ms ({bound_name(problem, fused)})"
    names = map(label, (step_words.named(problem.graph), problem.cluster.name))
    title = f"{' on '.join(names)}, {placement.schedule}: {result.step_time_ns / 1e6:,.3f} ms; {bound}"
    axes.set_title(
        title if result.infeasible is None else f"{title}\ninfeasible: {label(result.infeasible)}",
        loc="left",
        fontsize=10,
    )
    save(figure, path)


def draw(axes: Axes, problem: Problem, placement: Placement, timeline: Timeline) -> None:
    """Draws the ops of each device, coloured by phase; above them, in black, its sent and received transfers.

    Of several micro-batches each has a hue and its number on it; backward passes are darker.
    """
    graph = problem.graph
    groups = coloured_phases(graph) if graph.copies is None else coloured_copies(graph)
    for group in groups:
        start_ns, end_ns, device = (
            column[group.ops] for column in (timeline.start_ns, timeline.end_ns, placement.device)
        )
        axes.add_collection(PolyCollection(bars(start_ns, end_ns, device, *OPS), facecolors=group.colour, linewidths=0))
    sent = bars(timeline.transfer_start_ns, timeline.transfer_end_ns, timeline.transfer_src, *TRANSFERS)
    copied = timeline.receive_start_ns >= 0
    received = bars(
        timeline.receive_start_ns[copied], timeline.receive_end_ns[copied], timeline.transfer_dst[copied], *TRANSFERS
    )
    axes.add_collection(PolyCollection([*sent, *received], facecolors="black", linewidths=0))
    named = [(group.colour, group.name) for group in groups if graph.copies is None or group.name in UNNUMBERED]
    name_colours(axes, [*named, ("black", "transfers")])
    axes.set(xlim=(0, max(1, int(timeline.end_ns.max())) / 1e6), ylim=(-0.5, problem.num_devices - 0.5), xlabel="ms")
    if graph.copies is not None:
        _number(axes, graph, placement, timeline)
    axes.set_yticks(range(problem.num_devices), list(map(label, problem.cluster.device_names)))


def _number(axes: Axes, graph: ComputationGraph, placement: Placement, timeline: Timeline) -> None:
    """Writes the number of its micro-batch on each pass that is wide enough for it."""
    timed = passes(graph, placement.device, timeline)
    wide = timed.end_ns - timed.start_ns > timeline.end_ns.max() / NUMBERS
    for row, start, end, number, backward in zip(*(column[wide].tolist() for column in timed), strict=True):
        place, colour = ((start + end) / 2e6, row + sum(OPS) / 2), "white" if backward else "black"
        axes.annotate(str(number), place, color=colour, fontsize=8, ha="center", va="center")


class DrawnPhase(NamedTuple):
    """A phase of a graph, its colour and its ops (a mask)."""

    name: str
    colour: str
    ops: Bool[np.ndarray, " ops"]


def coloured_phases(graph: ComputationGraph) -> list[DrawnPhase]:
    """The phases that occur in a graph; ops without a phase come last. A phase has the same colour in every picture."""
    phases = [DrawnPhase(name, f"C{number}", graph.phase.among([name])) for number, name in enumerate(PHASES)]
    return [
        phase for phase in (*phases, DrawnPhase("no phase", "lightgrey", graph.phase.index == NONE)) if phase.ops.any()
    ]


def label(name: str) -> str:
    """A name as a picture shows it: one line, not too long."""
    return printable(name, MOST_OF_A_NAME)


def name_colours(axes: Axes, colours: Sequence[tuple[str, str]]) -> None:
    """Adds a legend above the axes, from pairs of a colour and its name."""
    handles = [Patch(color=colour, label=name) for colour, name in colours]
    axes.legend(
        handles=handles, fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), frameon=False
    )


def bars(start_ns: np.ndarray, end_ns: np.ndarray, row: np.ndarray, low: float, high: float) -> list[np.ndarray]:
    """The corners `[4, 2]` of a rectangle per entry: from start to end in ms, from `row + low` to `row + high`."""
    left, right = start_ns / 1e6, end_ns / 1e6
    corners = [(left, row + low), (right, row + low), (right, row + high), (left, row + high)]
    return list(np.stack([np.stack(corner, axis=1) for corner in corners], axis=1))


def check_ending(path: str | os.PathLike[str]) -> None:
    """Raises ValueError if the extension of `path` is not in `FORMATS`."""
    if Path(path).suffix not in FORMATS:
        raise ValueError(f"{path}: the ending is none of {', '.join(FORMATS)}")


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure atomically; equal figures give equal bytes.

    `$x$` in a name is text, not a formula; powers of ten on axes are formulas. Raises OSError.
    """
    buffer = io.BytesIO()
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis) if axis.get_scale() == "log"]
    powers = {label for axis in axes for label in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        text.set_parse_math(text in powers)
    with rc_context({"svg.hashsalt": "gnnplace"}):
        figure.savefig(buffer, format=Path(path).suffix[1:], dpi=110, metadata=FORMATS[Path(path).suffix])
    atomic.write_bytes(path, buffer.getvalue())
