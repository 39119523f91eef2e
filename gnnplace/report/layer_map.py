"""Which device runs each module at each time step: the picture of a placement in Mirhoseini et al. (2018), with
backward passes.

Rows are modules. Columns are the time steps of an unrolled network; ops without a time step have a column for each
phase. A step of several replicas has each column once for each of them. The colour of a cell is the device that does
more than half of its work; if none does, the cell is grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.graph import NONE, Copies
from gnnplace.report.chain_words import Step
from gnnplace.report.page import plain
from gnnplace.report.picture import coloured_phases
from gnnplace.report.timeline_data import device_colours
from gnnplace.units.modules import modules

MOST_HEIGHT = 1100
NARROWEST = 0.14  # least width of a panel, as a fraction of the picture
GAP = 0.02  # between panels, likewise
MOST_TICKS, MOST_NAMES = 20, 80  # labels of a panel's columns, and of modules
MOST_LYING = 12  # labels of columns that lie beside each other
TIMELESS, PHASE = "without a time step", "phase"
SEVERAL, GREY = "several devices", "#b5b9c0"
BARE = {"automargin": True, "showgrid": False, "zeroline": False}


class Panel(NamedTuple):
    """Columns of the picture: their names, and the column of each op, `NONE` for ops of other panels."""

    title: str
    columns: tuple[str, ...]
    column: Int64[np.ndarray, " ops"]


def panels(step: Step) -> list[Panel]:
    """The panels that have columns: time steps of the forward pass, of the backward pass, phases without time steps."""
    graph = step.problem.graph
    backward = graph.phase.among(["backward_data", "backward_weight"])
    timed = graph.time_step != NONE
    all_panels = [
        _steps(step, "time step, forward", timed & ~backward),
        _steps(step, "time step, backward", timed & backward),
    ]
    phases = [phase for phase in coloured_phases(graph) if (phase.ops & ~timed).any()]
    column = np.full(step.problem.num_ops, NONE, dtype=np.int64)
    for number, phase in enumerate(phases):
        column[phase.ops & ~timed] = number
    all_panels.append(Panel(TIMELESS if timed.any() else PHASE, tuple(phase.name for phase in phases), column))
    return [_of_replicas(panel, graph.copies) for panel in all_panels if panel.columns]


def _of_replicas(panel: Panel, copies: Copies | None) -> Panel:
    """The panel with each column once for each replica, if there are several."""
    if copies is None or copies.replicas == 1:
        return panel
    columns = [f"{name} @r{replica}" for name in panel.columns for replica in range(copies.replicas)]
    column = np.where(panel.column == NONE, NONE, panel.column * copies.replicas + copies.replica)
    return Panel(panel.title, tuple(columns), column)


def figure(step: Step) -> dict[str, Any]:
    """The picture as a plotly figure: a heat map for each panel, side by side."""
    names, drawn_panels = step.problem.cluster.device_names, panels(step)
    columns = np.array([len(panel.columns) for panel in drawn_panels])
    widths = np.maximum(NARROWEST * columns.sum(), columns)
    ends = widths.cumsum() / widths.sum()
    rows = modules(step.problem.graph.original).names
    layout: dict[str, Any] = {
        "height": min(MOST_HEIGHT, 110 + 24 * len(rows)), "margin": {"l": 10, "r": 10, "t": 30, "b": 45},
        "yaxis": {"autorange": "reversed", **_ticks(rows, MOST_NAMES)},
    }  # fmt: skip
    colours, data = [*device_colours(len(names)), GREY], []
    for number, (panel, end, width) in enumerate(zip(drawn_panels, ends, widths / widths.sum(), strict=True), 1):
        axis = "" if number == 1 else str(number)
        layout[f"xaxis{axis}"] = {
            "domain": [float(end - width + (GAP if number > 1 else 0)), float(end)], "anchor": "y",
            "title": {"text": panel.title}, **_ticks(panel.columns, MOST_TICKS),
            "tickangle": 90 if panel.title == TIMELESS or _many(panel) else 0,
        }  # fmt: skip
        data.append(_heat_map(step, panel, colours) | {"xaxis": f"x{axis}", "yaxis": "y"})
    keys = names if all(len(names) not in row for drawn in data for row in drawn["z"]) else (*names, SEVERAL)
    data += [_key(name, colour) for name, colour in zip(keys, colours, strict=False)]
    return {"data": data, "layout": layout | {"legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}}}


def _many(panel: Panel) -> bool:
    """Whether the names of phases are too many to lie beside each other."""
    return panel.title == PHASE and len(panel.columns) > MOST_LYING


def work_ns(step: Step, panel: Panel) -> Int64[np.ndarray, "modules columns devices"]:
    """The work of each device in each cell. Modules are those of one replica."""
    device, rows = step.placement.device, np.flatnonzero(panel.column != NONE)
    num_modules = modules(step.problem.graph.original).num_modules
    cells = np.zeros((num_modules, len(panel.columns), step.problem.num_devices), dtype=np.int64)
    module = step.modules.module[rows] % num_modules
    np.add.at(cells, (module, panel.column[rows], device[rows]), step.problem.time_ns[rows, device[rows]])
    return cells


def _ticks(names: Sequence[str], most: int) -> dict[str, Any]:
    """An axis of names, of which at most `most` are written."""
    apart = -(-len(names) // most)
    return BARE | {"tickvals": list(range(0, len(names), apart)), "ticktext": list(map(plain, names[::apart]))}


def _steps(step: Step, title: str, ops: Bool[np.ndarray, " ops"]) -> Panel:
    used = np.unique(step.problem.graph.time_step[ops])
    column = np.where(ops, np.searchsorted(used, step.problem.graph.time_step), NONE)
    return Panel(title, tuple(map(str, used.tolist())), column)


def _heat_map(step: Step, panel: Panel, colours: list[str]) -> dict[str, Any]:
    work, names = work_ns(step, panel), step.problem.cluster.device_names
    most = [[_whose(cell) for cell in row] for row in work]
    edges = np.linspace(0, 1, len(colours) + 1).tolist()
    scale = [
        [edge, colour] for low, high, colour in zip(edges, edges[1:], colours, strict=False) for edge in (low, high)
    ]
    return {
        "type": "heatmap", "z": most, "zmin": -0.5, "zmax": len(colours) - 0.5, "colorscale": scale, "showscale": False,
        "xgap": 1, "ygap": 1,
        "text": [[_shares(names, cell) for cell in row] for row in work], "hoverongaps": False,
        "hovertemplate": "%{y}, %{x}<br>%{text}<extra></extra>",
    }  # fmt: skip


def _whose(cell: Int64[np.ndarray, " devices"]) -> int | None:
    """The device with more than half of the work; the number of devices if there is none, None without work."""
    if not cell.any():
        return None
    return int(cell.argmax()) if 2 * cell.max() > cell.sum() else len(cell)


def _shares(names: tuple[str, ...], cell: Int64[np.ndarray, " devices"]) -> str:
    busy = [device for device in np.argsort(-cell, kind="stable").tolist() if cell[device]]
    return "<br>".join(f"{plain(names[device])}: {cell[device] / 1e6:,.3f} ms of work" for device in busy)


def _key(name: str, colour: str) -> dict[str, Any]:
    """An entry of the legend."""
    return {
        "type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": plain(name), "hoverinfo": "skip",
        "marker": {"color": colour, "symbol": "square", "size": 11},
    }  # fmt: skip
