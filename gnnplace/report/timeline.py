"""A simulated step as a picture: what each device runs, sends and receives over time."""

from __future__ import annotations

import os

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report.picture import bars, check_ending, coloured_phases, label, name_colours, save
from gnnplace.result import StepResult, Timeline

OPS, TRANSFERS = (-0.4, 0.25), (0.27, 0.4)  # where a device's ops and transfers lie around its line


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
    names = map(label, (problem.graph.name, problem.cluster.name))
    title = f"{' on '.join(names)}, {placement.schedule}: {result.step_time_ns / 1e6:,.3f} ms; {bound}"
    axes.set_title(title if result.infeasible is None else f"{title}\ninfeasible: {label(result.infeasible)}", loc="left", fontsize=10)
    save(figure, path)


def draw(axes: Axes, problem: Problem, placement: Placement, timeline: Timeline) -> None:
    """Draws the ops of each device, coloured by phase, and in black above them its transfers (sent, and received copies); time in ms."""
    phases = coloured_phases(problem.graph)
    for phase in phases:
        start_ns, end_ns, device = (column[phase.ops] for column in (timeline.start_ns, timeline.end_ns, placement.device))
        axes.add_collection(PolyCollection(bars(start_ns, end_ns, device, *OPS), facecolors=phase.colour, linewidths=0))
    sent = bars(timeline.transfer_start_ns, timeline.transfer_end_ns, timeline.transfer_src, *TRANSFERS)
    copied = timeline.receive_start_ns >= 0
    received = bars(timeline.receive_start_ns[copied], timeline.receive_end_ns[copied], timeline.transfer_dst[copied], *TRANSFERS)
    axes.add_collection(PolyCollection([*sent, *received], facecolors="black", linewidths=0))
    name_colours(axes, [*((phase.colour, phase.name) for phase in phases), ("black", "transfers")])
    axes.set(xlim=(0, max(1, int(timeline.end_ns.max())) / 1e6), ylim=(-0.5, problem.num_devices - 0.5), xlabel="ms")
    axes.set_yticks(range(problem.num_devices), list(map(label, problem.cluster.device_names)))
