"""A simulated step as a picture: what each device runs, sends and receives over time."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gnnplace import atomic
from gnnplace.evaluate.bounds import bound_name, lower_bound
from gnnplace.graph import PHASES
from gnnplace.placement import Placement
from gnnplace.problem import Problem
from gnnplace.result import StepResult, Timeline

OPS, TRANSFERS = (-0.4, 0.25), (0.27, 0.4)  # where a device's ops and transfers lie around its line
NO_PHASE = "lightgrey"
FORMATS: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # and what not to write of now


def write_picture(path: str | os.PathLike[str], problem: Problem, placement: Placement, result: StepResult) -> None:
    """Draws a result that was simulated with its timeline, in the format of the ending of `path`, one of `FORMATS`.

    Raises ValueError for another ending or where there is no timeline, OSError where the file can't be written.
    """
    check_ending(path)
    if result.timeline is None or result.step_time_ns is None:
        raise ValueError(f"{path}: nothing to draw: {result.infeasible or 'simulated without a timeline'}")
    figure = Figure(figsize=(14, 1.4 + 0.8 * problem.num_devices), layout="tight")
    axes = figure.add_subplot()
    draw(axes, problem, placement, result.timeline)
    bound = f"bound {lower_bound(problem) / 1e6:,.3f} ms ({bound_name(problem)})"
    title = f"{problem.graph.name} on {problem.cluster.name}, {placement.schedule}: {result.step_time_ns / 1e6:,.3f} ms; {bound}"
    axes.set_title(title if result.infeasible is None else f"{title}\ninfeasible: {result.infeasible}", loc="left", fontsize=10)
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "gnnplace"}):  # the same step gives the same bytes
        figure.savefig(buffer, format=Path(path).suffix[1:], dpi=110, metadata=FORMATS[Path(path).suffix])
    atomic.write_bytes(path, buffer.getvalue())


def check_ending(path: str | os.PathLike[str]) -> None:
    """Raises ValueError where the ending of `path` is not one of `FORMATS`."""
    if Path(path).suffix not in FORMATS:
        raise ValueError(f"{path}: the ending is none of {', '.join(FORMATS)}")


def draw(axes: Axes, problem: Problem, placement: Placement, timeline: Timeline) -> None:
    """Ops by device in the colour of their phase, in black above them what it sends and what it is busy receiving; time in ms."""
    phase = problem.graph.phase
    for number, name in enumerate((*PHASES, None)):
        chosen = phase.index < 0 if name is None else phase.among([name])
        colour = NO_PHASE if name is None else f"C{number}"
        bars = _bars(timeline.start_ns[chosen], timeline.end_ns[chosen], placement.device[chosen], *OPS)
        axes.add_collection(PolyCollection(bars, facecolors=colour, linewidths=0))
    sent = _bars(timeline.transfer_start_ns, timeline.transfer_end_ns, timeline.transfer_src, *TRANSFERS)
    copied = timeline.receive_start_ns >= 0
    received = _bars(timeline.receive_start_ns[copied], timeline.receive_end_ns[copied], timeline.transfer_dst[copied], *TRANSFERS)
    axes.add_collection(PolyCollection([*sent, *received], facecolors="black", linewidths=0))
    used = [(f"C{number}", name) for number, name in enumerate(PHASES) if phase.among([name]).any()]
    used += [(NO_PHASE, "no phase")] if (phase.index < 0).any() else []
    handles = [Patch(color=colour, label=name) for colour, name in (*used, ("black", "transfers"))]
    axes.legend(handles=handles, fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), frameon=False)
    axes.set(xlim=(0, max(1, int(timeline.end_ns.max())) / 1e6), ylim=(-0.5, problem.num_devices - 0.5), xlabel="ms")
    axes.set_yticks(range(problem.num_devices), problem.cluster.device_names)


def _bars(start_ns: np.ndarray, end_ns: np.ndarray, row: np.ndarray, low: float, high: float) -> list[np.ndarray]:
    """The corners `[4, 2]` of a rectangle for each row, from start to end, between `low` and `high` of its device's line."""
    left, right = start_ns / 1e6, end_ns / 1e6
    corners = [(left, row + low), (right, row + low), (right, row + high), (left, row + high)]
    return list(np.stack([np.stack(corner, axis=1) for corner in corners], axis=1))
