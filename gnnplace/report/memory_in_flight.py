"""Who holds the memory of each device over a step: its state and what runs once, sums and fetches, each micro-batch.

Schedules of a pipeline differ in how many micro-batches hold activations at once: all in GPipe (Huang et al., NeurIPS
2019), as many as there are stages from a stage to the last in 1F1B (Narayanan et al., SOSP 2019).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.graph import NONE
from gnnplace.report import step_words, terminal
from gnnplace.report.chain_words import Step
from gnnplace.report.micro_batch_colours import owners
from gnnplace.report.page import plain
from gnnplace.report.picture import label
from gnnplace.schedules.device_use import MemoryChanges, in_flight, memory_changes

MOMENTS = 500  # of a device that are drawn: the peak of each interval
MOST_DEVICES = 16  # that are drawn
HEIGHT, BELOW = 92, 45  # of a device's panel, of the axis of time, in pixels
HEAD, HIGH_HEAD, FEW = 84, 124, 10  # of a legend of few owners, and of more, under the tools, in pixels
GAP = 0.28  # of a panel, for its title
GRID = {"zeroline": False, "gridcolor": "#eceef2"}


class Holdings(NamedTuple):
    """Each owner holds `bytes` on a device from each moment on."""

    time_ns: Int64[np.ndarray, " moments"]
    bytes: Int64[np.ndarray, "owners moments"]


def holdings(step: Step) -> list[Holdings]:
    """What each owner (`micro_batch_colours.owners`) holds on each device: together, what the device holds.

    A buffer that a sum, ring or fetch writes or views is theirs, though a micro-batch may have made it.
    """
    graph, changes = step.problem.graph, memory_changes(step.problem, step.placement.device, step.timeline)
    names, _, of = owners(graph)
    of_output, added = of[graph.output_op], len(names) - 1
    of_output[graph.output_root[of_output == added]] = added
    owner = np.where(changes.output == NONE, of[changes.op], of_output[changes.output])
    return [_holdings(changes, owner, device, len(names)) for device in range(step.problem.num_devices)]


def figure(step: Step) -> dict[str, Any]:
    """A panel of stacked areas for each device that is used; of many devices those with most memory."""
    uses, cluster = holdings(step), step.problem.cluster
    most = in_flight(step.problem, step.placement.device, step.timeline)
    peaks = np.array([use.bytes.sum(axis=0).max() for use in uses])
    devices = np.sort(np.argsort(-peaks, kind="stable")[: min(MOST_DEVICES, max(1, np.count_nonzero(peaks)))]).tolist()
    panels, step_ms = len(devices), step.step_time_ns / 1e6
    used = np.any([use.bytes.any(axis=1) for use in uses], axis=0)
    head = HEAD if uses[0].bytes.shape[0] <= FEW else HIGH_HEAD
    layout: dict[str, Any] = {
        "height": head + BELOW + HEIGHT * panels, "margin": {"l": 10, "r": 10, "t": head, "b": BELOW},
        "hovermode": "closest", "plot_bgcolor": "#fff", "annotations": [],
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": GRID | {
            "range": [0, step_ms], "title": {"text": "ms"}, "exponentformat": "none",
            "anchor": _axis(panels - 1),
        },
    }  # fmt: skip
    data: list[dict[str, Any]] = []
    for panel, device in enumerate(devices):
        top = 1 - (panel + GAP) / panels
        layout[_axis(panel).replace("y", "yaxis")] = GRID | {
            "domain": [1 - (panel + 1) / panels, top], "range": [0, 1.05 * int(peaks.max()) / 2**20],
            "nticks": 3, "automargin": True, "fixedrange": True,
        }  # fmt: skip
        name = plain(label(cluster.device_names[device]))
        about = f"{name}: at most {terminal.mebibytes(int(peaks[device]))}, {most[device]} in flight"
        layout["annotations"].append({
            "text": about, "x": 0, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left",
            "yanchor": "bottom", "showarrow": False, "font": {"size": 12},
        })  # fmt: skip
        data += _areas(step, _peaks(uses[device], step.step_time_ns), name, panel, used)
    return {"data": data, "layout": layout}


def _areas(
    step: Step, use: Holdings, device: str, panel: int, used: Bool[np.ndarray, " owners"]
) -> list[dict[str, Any]]:
    """The areas of a panel, from below: what runs once, what is added, micro-batches, as far as they are `used`.

    The first panel names them."""
    names, colours, _ = owners(step.problem.graph)
    unit, hues = step_words.one(step.problem.graph), len(names) - 2
    words = [*(f"{unit} {name}" for name in names[:hues]), f"state, {names[hues]}", names[-1]]
    time = [*(use.time_ns / 1e6).tolist(), step.step_time_ns / 1e6]
    return [
        {
            "type": "scatter", "mode": "none", "stackgroup": str(panel), "fillcolor": colours[owner],
            "line": {"shape": "hv"}, "legendgroup": words[owner], "showlegend": not panel, "name": words[owner],
            "x": time, "y": [*(size := (use.bytes[owner] / 2**20).round(3).tolist()), size[-1]], "yaxis": _axis(panel),
            "hovertemplate": f"{device}, {words[owner]}: %{{y:,.1f}} MiB at %{{x:,.3f}} ms<extra></extra>",
        }
        for owner in (hues, hues + 1, *range(hues))
        if used[owner]
    ]  # fmt: skip


def _axis(panel: int) -> str:
    return f"y{panel + 1}" if panel else "y"


def _holdings(changes: MemoryChanges, owner: Int64[np.ndarray, " changes"], device: int, count: int) -> Holdings:
    here = changes.device == device
    moments, place = np.unique(np.append(0, changes.time_ns[here]), return_inverse=True)
    change = np.zeros((count, len(moments)), dtype=np.int64)
    np.add.at(change, (owner[here], place[1:]), changes.bytes[here])
    return Holdings(moments, change.cumsum(axis=1))


def _peaks(use: Holdings, step_ns: int) -> Holdings:
    """The moment of each interval of the step at which the device holds most, and the first."""
    interval = use.time_ns * MOMENTS // max(1, step_ns)
    order = np.lexsort((-use.bytes.sum(axis=0), interval))
    _, first = np.unique(interval[order], return_index=True)
    kept = np.unique(np.append(0, order[first]))
    return Holdings(use.time_ns[kept], use.bytes[:, kept])
