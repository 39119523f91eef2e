"""Profiles a workload on this machine: the time of every op on every kind of device, and transfers between the kinds
(`MeasuredCosts`).

Ops are timed within whole steps on one device, so that caches are as in a real step. An op's time is its median over
the steps. Ops that nothing executes (variables, inputs) take no time.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, permutations
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.choices import STEPS
from gnnplace.cluster import Cluster, Device
from gnnplace.costs.measured import CostProvenance, LinkSample, MeasuredCosts
from gnnplace.execution.machine import gpus
from gnnplace.execution.timing import STEADY, warm_up
from gnnplace.execution.workload import ExecutionPlan, OpTimes, Workload
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.version import VERSION

TIMED_TOGETHER = 5


def profile(workload: Workload, cluster: Cluster, steps: int = STEPS) -> MeasuredCosts:
    """Times a workload's ops on the first device of each kind, and the first link of each pair of kinds.

    Ops run in `steps` steps, at least 1. Raises MeasurementError if one of these devices can't run the step alone.
    """
    graph = workload.graph
    first = {device.kind: device for device in reversed(cluster.devices)}
    times = {kind: op_medians(workload, device, steps) for kind, device in sorted(first.items())}
    links: dict[tuple[str, str], tuple[LinkSample, ...]] = {}
    for pair in permutations(cluster.devices, 2):
        kinds = (pair[0].kind, pair[1].kind)
        if kinds not in links:
            links[kinds] = workload.links(pair)
    provenance = CostProvenance(
        f"gnnplace {VERSION}", hardware("gpu" in times), datetime.now(UTC).date().isoformat(), steps
    )
    return MeasuredCosts(graph.name, graph.sha256, graph.op_names, times, links, provenance)


def op_medians(workload: Workload, device: Device, steps: int) -> Int64[np.ndarray, " ops"]:
    """The time of each op on one device in ns: its median over `steps` steps, scaled to steps without op timing."""
    profiler = Profiler(workload, (device,))
    try:
        warm_up(profiler.step.run, STEADY)
        for done in range(0, steps, TIMED_TOGETHER):
            profiler.run(min(TIMED_TOGETHER, steps - done))
    finally:
        profiler.close()
    return profiler.op_ns()


class _Window(NamedTuple):
    """Step times in ns and, for as many other steps, the time of each op and the gap before it (`_durations`)."""

    steps: list[int]
    work: list[Int64[np.ndarray, " ops"]]
    gaps: list[Int64[np.ndarray, " ops"]]


class Profiler:
    """Profiles a step on one device.

    Each `run` times some steps, then the ops of as many other steps. Profilers may take turns.
    """

    def __init__(
        self, workload: Workload, devices: Sequence[Device], works: int = 0, form: Parallelism | None = None
    ) -> None:
        """Starts the step in a form, that of the workload unless given, on the device with the index `works`."""
        graph = workload.graph if form is None else form.of(workload.graph)
        device = np.full(graph.num_ops, works, dtype=np.int32)
        self.step = workload.start(ExecutionPlan(tuple(devices), device, graph.order, form))
        self._windows: list[_Window] = []

    def run(self, steps: int) -> list[int]:
        """Runs steps, then as many with op timing. Returns the times of the first ones in ns."""
        step_ns = self.step.run(steps)
        self._windows.append(
            _Window(step_ns, *map(list, zip(*map(_durations, self.step.op_times(steps)), strict=True)))
        )
        return step_ns

    def op_ns(self, counted: Sequence[int] | None = None) -> Int64[np.ndarray, " ops"]:
        """The median time of each op in ns, 0 if nothing executes it. `counted` are the runs to use (default: all).

        An op's time includes the gap between the end of the op before it and its start: the framework's dispatch. Op
        timing lengthens these gaps, so they are scaled until the ops add up to the median step without op timing.
        """
        windows = self._windows if counted is None else [self._windows[number] for number in counted]
        step, work, gaps = (
            np.median(list(chain.from_iterable(values)), axis=0) for values in zip(*windows, strict=True)
        )
        between = max(0.0, float(step) - work.sum())
        return np.rint(work + gaps * (between / max(1.0, gaps.sum()))).astype(np.int64)

    def close(self) -> None:
        """Closes the step."""
        self.step.close()


def _durations(times: OpTimes) -> tuple[Int64[np.ndarray, " ops"], Int64[np.ndarray, " ops"]]:
    """The run time of each op, and the gap between it and the end of the op before it."""
    ran = np.flatnonzero(times.end_ns >= 0)
    ran = ran[np.argsort(times.start_ns[ran], kind="stable")]
    work, gap = np.zeros((2, len(times.end_ns)), dtype=np.int64)
    work[ran] = times.end_ns[ran] - times.start_ns[ran]
    gap[ran[1:]] = np.maximum(0, times.start_ns[ran[1:]] - times.end_ns[ran[:-1]])
    return work, gap


def hardware(with_gpus: bool = False) -> str:
    """The names of this machine's processor, of its GPUs if `with_gpus`, and of its operating system."""
    with open("/proc/cpuinfo") as file:
        model = next(
            (line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine()
        )
    return ", ".join([model, *([gpu.name for gpu in gpus()] if with_gpus else []), platform.system()])
