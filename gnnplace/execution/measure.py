"""Measures placements: starts them, checks them against the unplaced step, times them, reads their memory.

The order matters. The check compares the first steps, which begin with the initial values. Memory is read last, because
its profiler slows the step. `measured_step` also simulates the placement, for comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gnnplace.execution.host import Host
from gnnplace.execution.timing import Estimate, Load, LoadMeter, Protocol, estimate, ratio, timed
from gnnplace.execution.workload import ExecutionPlan, Outputs, RunningStep, plan
from gnnplace.isolation.outcome import Difference, MeasurementError
from gnnplace.placement import Placement, Schedule, check
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate

CHECKED_STEPS = 3
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Measurement:
    """A successful measurement: step times (ns), deviation from the unplaced step, each device's peak memory and
    hardware, and the machine's load.
    """

    step_ns: tuple[int, ...]
    difference: Difference
    peak_memory_bytes: tuple[int, ...]
    devices: tuple[str, ...]
    load: Load

    @property
    def median_ns(self) -> int:
        """The median step time."""
        return int(np.median(self.step_ns))


def measure(
    host: Host, plans: Sequence[ExecutionPlan], protocol: Protocol, unplaced: tuple[Outputs, str] | None = None
) -> list[Measurement]:
    """Measures placements of the host's workload, timed in turns.

    `unplaced` is the result of `CHECKED_STEPS` unplaced steps; if None, they run now, for each form of the step. Raises
    MeasurementError with the outcome of the first placement that fails.
    """
    expected = {
        form: unplaced or host.unplaced(CHECKED_STEPS, reference_kind(plans), form)
        for form in dict.fromkeys(plan.form for plan in plans)
    }
    with ExitStack() as started:
        steps = [_start(host, plan, started) for plan in plans]
        differences = [_check(step, *expected[plan.form]) for step, plan in zip(steps, plans, strict=True)]
        meter = LoadMeter()
        times = timed([step.run for step in steps], protocol)
        load = meter.load()
        peaks = [fitting_peaks(step, plan) for step, plan in zip(steps, plans, strict=True)]
        hardware = [tuple(step.described()) for step in steps]
    return [
        Measurement(tuple(step_ns), deviation, peak, names, load)
        for step_ns, deviation, peak, names in zip(times, differences, peaks, hardware, strict=True)
    ]


def fitting_peaks(step: RunningStep, plan: ExecutionPlan) -> tuple[int, ...]:
    """The peak memory of each device in one step, in bytes.

    Raises MeasurementError(out_of_memory) if a peak exceeds the memory of its device. Executors enforce capacities only
    roughly; this check is exact.
    """
    peaks = tuple(step.peak_memory_bytes())
    for device, peak in zip(plan.devices, peaks, strict=True):
        if peak > device.memory_bytes:
            raise MeasurementError(
                "out_of_memory", f"{device.name} held {peak} bytes; its memory is {device.memory_bytes} bytes"
            )
    return peaks


def reference_kind(plans: Sequence[ExecutionPlan]) -> str:
    """The kind of device that runs the unplaced step: `gpu` if any plan has a GPU, else `cpu`."""
    return "gpu" if any(device.kind == "gpu" for plan in plans for device in plan.devices) else "cpu"


def difference(
    placed: Outputs, unplaced: Outputs, words: str, least: Mapping[str, float] = MappingProxyType({})
) -> Difference:
    """The largest relative deviation of a placed step's losses and variables from the unplaced ones.

    It is relative to the largest element of a variable, and at least to the variable's value in `least`. `words`
    describes the unplaced step. Raises MeasurementError(wrong_output) if the two have different variables.
    """
    if placed.variables.keys() != unplaced.variables.keys():
        odd = sorted(placed.variables.keys() ^ unplaced.variables.keys())
        raise MeasurementError("wrong_output", f"{len(odd)} variables exist on one side only: {', '.join(odd[:3])}")
    steps = len(unplaced.losses)
    losses = [_relative(np.array(a), np.array(b)) for a, b in zip(placed.losses[:steps], unplaced.losses, strict=True)]
    deviations = {f"the loss of step {step + 1}": value for step, value in enumerate(losses)}
    deviations |= {
        name: _relative(placed.variables[name], value, least.get(name, 0.0))
        for name, value in unplaced.variables.items()
    }
    worst = max(deviations, key=lambda name: deviations[name])
    return Difference(deviations[worst], worst, len(unplaced.variables), steps, words)


def checked(
    placed: Outputs, unplaced: Outputs, words: str, least: Mapping[str, float] = MappingProxyType({})
) -> Difference:
    """The `difference` of two outputs. Raises MeasurementError(wrong_output) if it exceeds `TOLERANCE`."""
    deviation = difference(placed, unplaced, words, least)
    if not deviation.largest <= TOLERANCE:
        after = f" after {deviation.steps} steps" if deviation.steps else ""
        size = f"{deviation.largest:.2g} (relative)"
        reason = f"{deviation.worst} differs by {size} from {words}{after}; {TOLERANCE:g} is allowed"
        raise MeasurementError("wrong_output", reason)
    return deviation


def _start(host: Host, plan: ExecutionPlan, started: ExitStack) -> RunningStep:
    """A running step, which `started` closes."""
    step = host.start(plan)
    started.callback(step.close)
    return step


def _check(step: RunningStep, unplaced: Outputs, words: str) -> Difference:
    """Runs the first steps and compares them with the unplaced ones."""
    step.run(len(unplaced.losses) - len(step.outputs().losses))  # some executors run their first step when they start
    return checked(step.outputs(), unplaced, words)


def _relative(value: np.ndarray, other: np.ndarray, least: float = 0.0) -> float:
    """The largest difference relative to the largest element, at least to `least`; infinite if one side alone is NaN or
    infinite.
    """
    if not value.size or np.array_equal(value, other, equal_nan=value.dtype.kind in "fc"):
        return 0.0
    wide = np.result_type(value, np.float64)  # complex numbers stay complex
    with np.errstate(invalid="ignore"):
        largest = max(np.abs(other.astype(wide)).max(), least, 1e-30)
        distance = np.abs(value.astype(wide) - other.astype(wide)).max() / largest
    return float(distance) if np.isfinite(distance) else float("inf")


class Placed(NamedTuple):
    """A placement of a problem."""

    problem: Problem
    placement: Placement


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """The simulated and the measured step of a placement, and the measured step of a reference.

    The simulation follows the order in which the executor runs the ops.
    """

    problem: Problem
    simulated: StepResult
    measured: Measurement
    reference: Measurement | None

    @property
    def step_time_ns(self) -> Estimate:
        """The median step time with its 95 % interval."""
        return estimate(self.measured.step_ns)

    @property
    def speedup(self) -> Estimate | None:
        """The reference's step time divided by this one's; None without a reference."""
        return None if self.reference is None else ratio(self.reference.step_ns, self.measured.step_ns)


def first_device(problem: Problem) -> Placement:
    """Every op on the first device that it may run on: the usual reference."""
    return Placement(problem.allowed.argmax(axis=1).astype("int32"))


def measured_step(
    host: Host, placed: Placed, reference: Placed | None, protocol: Protocol, limit_s: float
) -> MeasuredStep:
    """Measures a placement within `limit_s` seconds, in turns with a reference.

    Their problems are forms of the host's graph on a cluster that describes this machine. Raises ValueError for an
    illegal placement, MeasurementError if the step does not run or computes something else.
    """
    several = [placed] if reference is None else [placed, reference]
    for problem, placement in several:
        legal(problem, placement)
    host.allow(limit_s)
    plans = [planned(problem, placement) for problem, placement in several]
    problem, placement = placed
    simulated = _as_run(host, problem, plans[0], placement.schedule)
    measurements = measure(host, plans, protocol)
    return MeasuredStep(problem, simulated, measurements[0], measurements[1] if len(measurements) > 1 else None)


def legal(problem: Problem, placement: Placement) -> Placement:
    """The placement. Raises ValueError if an executor can't run it: it has fused ops, or `check` refuses it."""
    if placement.fusion is not None:
        raise ValueError("fusion: a measured step runs each op by itself")
    if reason := check(problem, placement):
        raise ValueError(f"placement: {reason}")
    return placement


def planned(problem: Problem, placement: Placement) -> ExecutionPlan:
    """The plan of a legal placement."""
    (result,) = simulate(problem, [placement], timeline=True)
    assert result.timeline is not None
    return plan(problem, placement, result.timeline)


def _as_run(host: Host, problem: Problem, plan: ExecutionPlan, schedule: Schedule) -> StepResult:
    """The simulated result of a plan in the executor's order."""
    as_run = Problem(host.as_run(plan), problem.cluster, problem.time_ns, problem.contended_ns)
    (result,) = simulate(as_run, [Placement(plan.device, "fifo")])
    return replace(result, schedule=schedule)
