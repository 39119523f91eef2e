"""Measured costs of one graph: the time of each op on each device kind, and transfers of several sizes on links.

A profiler writes them; the calibration reads them. In a `problem` under measured costs every op takes its measured
time. A missing time is an error unless the caller names its device kind for roofline costs. As with every cost model,
times that the graph states for its ops take precedence (docs/execution-model.md#measured-costs).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import MAX_TIME_NS, Cluster, Device, Link
from gnnplace.costs import roofline
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import MAX_STEP_NS, Problem, allowed_on

NOT_MEASURED = -1


class LinkSample(NamedTuple):
    """One transfer: its time on the sender's channel, and the time from its start to its arrival.

    Both are equal if only one is measured.
    """

    bytes: int
    occupied_ns: int
    arrival_ns: int


@dataclass(frozen=True)
class CostProvenance:
    """The origin of measurements: tool with version, hardware, date (ISO 8601), and the steps behind each median."""

    tool: str
    hardware: str
    date: str
    steps: int


@dataclass(frozen=True, eq=False)
class MeasuredCosts:
    """Times by device name or kind, and samples of links by (source, destination) names or kinds.

    The name of a device takes precedence over its kind. Ops that are not allowed on a device have `NOT_MEASURED` there.
    Raises ValueError for a wrong number of times or a time out of range.
    """

    graph_name: str
    graph_sha256: str
    op_names: tuple[str, ...]
    time_ns: Mapping[str, Int64[np.ndarray, " ops"]]
    links: Mapping[tuple[str, str], tuple[LinkSample, ...]] = field(default_factory=dict)
    provenance: CostProvenance | None = None

    def __post_init__(self) -> None:
        if not self.time_ns:
            raise ValueError("time_ns: costs hold the times of at least one device kind")
        for key, times in self.time_ns.items():
            if len(times) != len(self.op_names):
                raise ValueError(
                    f"time_ns.{key}: {len(times)} times; the graph {self.graph_name!r} has {len(self.op_names)} ops"
                )
            bad = np.flatnonzero((times < NOT_MEASURED) | (times > MAX_TIME_NS))
            if len(bad):
                raise ValueError(
                    f"time_ns.{key}.{self.op_names[bad[0]]}: {times[bad[0]]} is not between 0 and {MAX_TIME_NS}"
                )
            times.setflags(write=False)
        for (src, dst), samples in self.links.items():
            if any(not 0 <= value <= MAX_TIME_NS for sample in samples for value in sample):
                raise ValueError(f"links {src} -> {dst}: a sample is not between 0 and {MAX_TIME_NS}")

    def device_ns(self, device: Device) -> Int64[np.ndarray, " ops"]:
        """The times on a device, by its name or else by its kind; `NOT_MEASURED` for ops without a time."""
        times = np.full(len(self.op_names), NOT_MEASURED, dtype=np.int64)
        for key in (device.kind, device.name):
            if key in self.time_ns:
                times = np.where(self.time_ns[key] == NOT_MEASURED, times, self.time_ns[key])
        return times

    def covers(self, device: Device) -> bool:
        """Whether there are times for a device's name or kind."""
        return device.name in self.time_ns or device.kind in self.time_ns

    def link_samples(self, link: Link, devices: Mapping[str, Device]) -> tuple[LinkSample, ...]:
        """The samples of a link, from the most specific pair of names or kinds that has samples; empty without any."""
        return next(
            (self.links[pair] for pair in _pairs(devices[link.src], devices[link.dst]) if pair in self.links), ()
        )


def _pairs(src: Device, dst: Device) -> Iterator[tuple[str, str]]:
    yield from ((first, second) for first in (src.name, src.kind) for second in (dst.name, dst.kind))


def problem(
    graph: ComputationGraph, cluster: Cluster, costs: MeasuredCosts, roofline_kinds: Collection[str] = ()
) -> Problem:
    """The problem of a graph on a cluster under measured costs (see `time_ns`).

    Links keep the cluster's constants; `links.measured` replaces these. Times are measured on devices that work alone.
    The slowdown of an op on a contended memory is that of its roofline costs.
    """
    alone_ns = time_ns(graph, cluster, costs, roofline_kinds)
    modelled_ns, contended_ns = roofline.times_ns(graph, cluster)
    if contended_ns is None:
        return Problem(graph, cluster, alone_ns)
    slow_ns = np.minimum(MAX_STEP_NS, np.rint(alone_ns * (contended_ns / modelled_ns)))
    return Problem(graph, cluster, alone_ns, np.maximum(alone_ns, slow_ns.astype(np.int64)))


def time_ns(
    graph: ComputationGraph, cluster: Cluster, costs: MeasuredCosts, roofline_kinds: Collection[str] = ()
) -> Int64[np.ndarray, "ops devices"]:
    """The time of every op on every device in ns, at least 1: measured for the device's name or else for its kind.

    Devices of a kind in `roofline_kinds` have roofline costs; such a kind must not have been measured. On a device
    where an op is not allowed, it takes the longest of its measured times. Raises ValueError if the costs are of
    another graph, lack the time of an op on a device where it is allowed, or cover a kind in `roofline_kinds`.

    The costs of a step of several micro-batches are those of one. A copy takes the time of its op; one that works on
    the rows of all micro-batches takes as much longer as its roofline says. Added ops, such as sums of gradients, have
    roofline costs.
    """
    if (copies := graph.copies) is not None:
        measured = time_ns(copies.original, cluster, costs, roofline_kinds)
        modelled, one = roofline.time_ns(graph, cluster), roofline.time_ns(copies.original, cluster)
        copied = np.rint(measured[copies.source] * (modelled / one[copies.source]))
        copied = np.clip(copied, 1, MAX_STEP_NS).astype(np.int64)
        return np.where(copies.added[:, None], modelled, copied)
    if costs.graph_sha256 != graph.plain.sha256:
        raise ValueError(
            f"the costs are those of {costs.graph_name!r} (sha256 {costs.graph_sha256}), not of {graph.name!r}"
        )
    given = roofline.given_ns(graph, cluster)
    columns = [
        _device_ns(graph, device, costs, roofline_kinds, given[:, d]) for d, device in enumerate(cluster.devices)
    ]
    return np.maximum(1, np.where(given == NONE, np.stack(columns, axis=1), given))


def _device_ns(
    graph: ComputationGraph,
    device: Device,
    costs: MeasuredCosts,
    roofline_kinds: Collection[str],
    given: Int64[np.ndarray, " ops"],
) -> Int64[np.ndarray, " ops"]:
    """The measured or roofline time of every op on one device; `given` are the times that ops state themselves."""
    if device.kind in roofline_kinds:
        if costs.covers(device):
            raise ValueError(
                f"device {device.name!r}: its times were measured, so kind {device.kind!r} needs no roofline"
            )
        return roofline.modelled_ns(graph, device)
    times = costs.device_ns(device)
    lacking = (times == NOT_MEASURED) & (given == NONE)
    longest = np.max(list(costs.time_ns.values()), axis=0)
    missing = np.flatnonzero(lacking & (allowed_on(graph, device.name, device.kind) | (longest == NOT_MEASURED)))
    if len(missing):
        raise ValueError(
            f"op {graph.op_names[missing[0]]!r}: no measured time for device kind {device.kind!r} "
            f"(device {device.name!r}); the costs have times for {', '.join(costs.time_ns)}"
        )
    return np.where(lacking, longest, times)
