"""A placement as tables for people: the device of each layer, and the work and memory of each device."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.single import best_device
from gnnplace.formats.placements import Predicted
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, rule_of
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.simulator.simulator import simulate
from gnnplace.units.granularity import devices_of_modules, granularity
from gnnplace.units.modules import modules, of_pytorch

MOST_ROWS = 30
DEEPEST = 4  # levels of a layer's name
MOST_DEVICES = 3  # devices that a row names
SEPARATORS = re.compile(r"[/.]")
PYTORCH = re.compile(r"[.]")  # its names may contain a "/"


class LayerRow(NamedTuple):
    """Consecutive layers with the same placement: their work on each device, and the bytes of their variables."""

    first: str
    last: str
    work_ns: Int64[np.ndarray, " devices"]
    persistent_bytes: int

    @property
    def name(self) -> str:
        return self.first if self.first == self.last else f"{self.first} ... {self.last}"


def layer_rows(problem: Problem, placement: Placement) -> list[LayerRow]:
    """The layers of a placement in order of their first op, at most `MOST_ROWS` rows.

    Names have as many levels as fit. Neighbours that run on the same single device share a row. If even the shortest
    names are too many, the layers with most work have rows, and all others share one.
    """
    rows: list[LayerRow] = []
    for depth in range(DEEPEST, 0, -1):
        rows = _merged(_rows(problem, placement, depth))
        if len(rows) <= MOST_ROWS:
            return rows
    rows.sort(key=lambda row: -int(row.work_ns.sum()))
    return [*rows[: MOST_ROWS - 1], _sum(rows[MOST_ROWS - 1 :], "others", "others")]


def print_layers(problem: Problem, placement: Placement) -> None:
    """Prints the table of `layer_rows` to stdout."""
    names = problem.cluster.device_names
    rows = [
        (
            row.name,
            _devices(names, row.work_ns),
            f"{row.work_ns.sum() / 1e6:,.3f}",
            f"{row.persistent_bytes / 2**20:,.1f}",
        )
        for row in layer_rows(problem, placement)
    ]
    terminal.print_table(("layer", "devices, by work", "work\nms", "variables\nMiB"), rows)


def print_devices(problem: Problem, placement: Placement, step: Predicted) -> None:
    """Prints the ops, work and peak memory of each device to stdout."""
    ops = np.bincount(placement.device, minlength=problem.num_devices).tolist()
    rows = []
    for device, count in zip(problem.cluster.devices, ops, strict=True):
        peak = None if step.peak_memory_bytes is None else step.peak_memory_bytes[device.name]
        idle = None if step.idle_ns is None else step.idle_ns[device.name]
        share = terminal.NONE if peak is None or not device.memory_bytes else f"{100 * peak / device.memory_bytes:.1f}"
        times = terminal.milliseconds(step.busy_ns[device.name]), terminal.milliseconds(idle)
        memory = terminal.NONE if peak is None else f"{peak / 2**30:,.2f}", f"{device.memory_bytes / 2**30:,.1f}"
        rows.append((device.name, f"{count:,}", *times, *memory, share))
    terminal.print_table(("device", "ops", "busy", "idle", "peak memory\nGiB", "of\nGiB", "\n%"), rows)


def beside_one_device(problem: Problem, placement: Placement, step_time_ns: int) -> str:
    """The step time on the fastest device alone, under the same schedule, compared with the placement's."""
    fastest = best_device(problem, simulate, rule_of(placement.schedule))
    if fastest is None or not fastest.fits:
        return "fits on no device alone"
    change = 100 * (1 - step_time_ns / max(1, fastest.step_time_ns))
    on = f"{terminal.milliseconds(fastest.step_time_ns)} on {problem.cluster.device_names[fastest.device]}"
    if step_time_ns == fastest.step_time_ns:
        return f"{on}, as long as this placement"
    compared = f"{change:.1f} % less" if change > 0 else f"{-change:.1f} % more, so prefer that device"
    return f"{on}; this placement takes {compared}"


def in_words(problem: Problem, placement: Placement) -> str:
    """The coarsest granularity that describes a placement: stages with their first modules, whole modules, or ops."""
    names, device = problem.cluster.device_names, devices_of_modules(problem.graph, placement.device)
    graph_modules = modules(problem.graph)
    match granularity(problem, placement):
        case "stage" if len(cards := _of_replicas(problem.graph, placement)) > 1:
            return f"stages: the whole network, a replica on each of {', '.join(names[card] for card in cards)}"
        case "stage":
            begins = [0, *(np.flatnonzero(np.diff(device)) + 1).tolist()]
            return "stages: " + ", ".join(
                f"{names[device[begin]]} from {graph_modules.names[begin]}" for begin in begins
            )
        case "module":
            apart = " for each micro-batch" if (device == NONE).any() else ""
            return f"modules: each of {graph_modules.num_modules:,} is on one device{apart}"
        case _:
            return f"ops: {int((device == NONE).sum()):,} of {graph_modules.num_modules:,} modules are split"


def _of_replicas(graph: ComputationGraph, placement: Placement) -> list[int]:
    """The device of each replica; empty if a replica has several, or the graph is a step of one micro-batch."""
    if (copies := graph.copies) is None:
        return []
    pairs = np.unique(np.stack([copies.replica, placement.device]), axis=1)
    return pairs[1].tolist() if pairs.shape[1] == copies.replicas else []


def _rows(problem: Problem, placement: Placement, depth: int) -> list[LayerRow]:
    graph = problem.graph
    labels = _labels(graph, depth)
    names = sorted(dict.fromkeys(labels), key=_first_level(graph, labels).__getitem__)
    index = {name: row for row, name in enumerate(names)}
    row = np.array([index[label] for label in labels])
    work = np.zeros((len(names), problem.num_devices), dtype=np.int64)
    np.add.at(work, (row, placement.device), problem.time_ns[np.arange(problem.num_ops), placement.device])
    held = np.zeros(len(names), dtype=np.int64)
    np.add.at(held, row, graph.persistent_bytes)
    return [LayerRow(name, name, work[i], int(held[i])) for i, name in enumerate(names)]


def _labels(graph: ComputationGraph, depth: int) -> list[str]:
    """The shortened layer of each op; its block or its kind if it has no layer."""
    separators = PYTORCH if of_pytorch(graph) else SEPARATORS
    short = ["/".join(separators.split(layer)[:depth]) for layer in graph.layer.values]
    return [
        short[layer] if layer != NONE else _unnamed(graph, op) for op, layer in enumerate(graph.layer.index.tolist())
    ]


def _unnamed(graph: ComputationGraph, op: int) -> str:
    return f"block {graph.block[op]}" if graph.block[op] != NONE else f"({graph.kind[op]})"


def _first_level(graph: ComputationGraph, labels: Iterable[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for label, level in zip(labels, graph.level.tolist(), strict=True):
        levels[label] = min(level, levels.get(label, level))
    return levels


def _merged(rows: list[LayerRow]) -> list[LayerRow]:
    """If there are too many rows, one row for neighbours on the same single device."""
    if len(rows) <= MOST_ROWS:
        return rows
    runs: list[list[LayerRow]] = []
    for row in rows:
        if runs and _alone(runs[-1][-1]) == _alone(row) != NONE:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [_sum(run, run[0].first, run[-1].last) for run in runs]


def _alone(row: LayerRow) -> int:
    """The device that does all of a row's work, `NONE` if several do."""
    busy = np.flatnonzero(row.work_ns)
    return int(busy[0]) if len(busy) == 1 else NONE


def _sum(rows: list[LayerRow], first: str, last: str) -> LayerRow:
    return LayerRow(
        first, last, np.sum([row.work_ns for row in rows], axis=0), sum(row.persistent_bytes for row in rows)
    )


def _devices(names: tuple[str, ...], work_ns: Int64[np.ndarray, " devices"]) -> str:
    busy = [device for device in np.argsort(-work_ns, kind="stable").tolist() if work_ns[device]]
    if len(busy) == 1:
        return names[busy[0]]
    shown = ", ".join(
        f"{names[device]} {100 * work_ns[device] / work_ns.sum():.0f} %" for device in busy[:MOST_DEVICES]
    )
    return shown if len(busy) <= MOST_DEVICES else f"{shown}, {len(busy) - MOST_DEVICES} more"
