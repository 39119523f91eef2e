"""One placement measured: started, proved to compute the same as the unplaced step, timed, its memory read.

The order matters: what is checked are the first steps, from the initial values on; memory is read last, under a profiler that slows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from gnnplace.execution.host import Host
from gnnplace.execution.timing import Load, LoadMeter, Protocol, timed
from gnnplace.execution.workload import Outputs, PlacedStep, Plan
from gnnplace.isolation.outcome import Difference, MeasurementError

CHECKED_STEPS = 3
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Measurement:
    """An `ok` measurement: every timed step, how equal the results are, what each device was and held, the machine's load."""

    step_ns: tuple[int, ...]
    difference: Difference
    peak_memory_bytes: tuple[int, ...]
    devices: tuple[str, ...]
    load: Load

    @property
    def median_ns(self) -> int:
        """The median step time."""
        return int(np.median(self.step_ns))


def measure(host: Host, plans: Sequence[Plan], protocol: Protocol, unplaced: tuple[Outputs, str] | None = None) -> list[Measurement]:
    """Measures placements of the host's workload, timed in turns. `unplaced` are `CHECKED_STEPS` of `Workload.unplaced`, run if absent.

    Raises MeasurementError with the outcome of the first that fails.
    """
    outputs, words = unplaced or host.unplaced(CHECKED_STEPS, reference_kind(plans))
    with ExitStack() as started:
        steps = [_start(host, plan, started) for plan in plans]
        differences = [_check(step, outputs, words) for step in steps]
        meter = LoadMeter()
        times = timed([step.run for step in steps], protocol)
        load = meter.load()
        read = [(fitting_peaks(step, plan), tuple(step.described())) for step, plan in zip(steps, plans, strict=True)]
    return [Measurement(tuple(t), d, *r, load) for t, d, r in zip(times, differences, read, strict=True)]


def fitting_peaks(step: PlacedStep, plan: Plan) -> tuple[int, ...]:
    """The most bytes that each device held in a step. What an executor can stop in time is not exact; what a device held is.

    Raises MeasurementError(out_of_memory) where a device held more than it has.
    """
    peaks = tuple(step.peak_memory_bytes())
    for device, peak in zip(plan.devices, peaks, strict=True):
        if peak > device.memory_bytes:
            raise MeasurementError("out_of_memory", f"{device.name} held {peak} bytes, and has {device.memory_bytes}")
    return peaks


def reference_kind(plans: Sequence[Plan]) -> str:
    """The kind of device on which the unplaced step runs: a GPU where any of the plans has one."""
    return "gpu" if any(device.kind == "gpu" for plan in plans for device in plan.devices) else "cpu"


def difference(placed: Outputs, unplaced: Outputs, words: str) -> Difference:
    """How far a placed step's losses and variables are from the unplaced ones.

    Raises MeasurementError(wrong_output) where one side has variables that the other lacks.
    """
    if placed.variables.keys() != unplaced.variables.keys():
        odd = sorted(placed.variables.keys() ^ unplaced.variables.keys())
        raise MeasurementError("wrong_output", f"{len(odd)} variables are on one side alone: {', '.join(odd[:3])}")
    steps = len(unplaced.losses)
    losses = [_relative(np.array(a), np.array(b)) for a, b in zip(placed.losses[:steps], unplaced.losses, strict=True)]
    found = {f"the loss of step {step + 1}": value for step, value in enumerate(losses)}
    found |= {name: _relative(placed.variables[name], value) for name, value in unplaced.variables.items()}
    worst = max(found, key=lambda name: found[name])
    return Difference(found[worst], worst, len(unplaced.variables), steps, words)


def _start(host: Host, plan: Plan, started: ExitStack) -> PlacedStep:
    step = host.start(plan)
    started.callback(step.close)
    return step


def _check(step: PlacedStep, unplaced: Outputs, words: str) -> Difference:
    step.run(len(unplaced.losses) - len(step.outputs().losses))  # some executors run their first step when they start
    found = difference(step.outputs(), unplaced, words)
    if not found.largest <= TOLERANCE:
        reason = f"{found.worst} differs by {found.largest:.2g} (relative) from {words} after {found.steps} steps; {TOLERANCE:g} is allowed"
        raise MeasurementError("wrong_output", reason)
    return found


def _relative(value: np.ndarray, other: np.ndarray) -> float:
    """The largest difference relative to the largest element; infinite where one side is not a number and the other is."""
    if not value.size or np.array_equal(value, other, equal_nan=value.dtype.kind == "f"):
        return 0.0
    with np.errstate(invalid="ignore"):
        distance = np.abs(value.astype(float) - other.astype(float)).max() / max(np.abs(other.astype(float)).max(), 1e-30)
    return float(distance) if np.isfinite(distance) else float("inf")
