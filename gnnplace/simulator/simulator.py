"""The simulator: docs/execution-model.md exactly, for many placements of one problem at once.

Samples run in parallel on all cores; results do not depend on the number of cores. An infeasible placement gives a result that states
the reason. A placement with the wrong shape or an unknown device raises ValueError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Int32, Int64, UInt32

from gnnplace.placement import RULES, Placement, Schedule, check
from gnnplace.problems import Problem
from gnnplace.result import StepResult, Timeline
from gnnplace.schedules.priorities import computed
from gnnplace.simulator.kernel import NEVER, NO_LIMIT, simulate_rows
from gnnplace.simulator.tables import Steps, Trace, borrowed_scratch, tables

MIN_OPS_PER_TASK = 20_000  # about 6 ms; for smaller tasks the overhead of a thread exceeds the gain
MAX_SAMPLES_PER_TASK = 16


def simulate(
    problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
) -> tuple[StepResult, ...]:
    """Simulates one step of every placement; the results are in the order of the placements.

    With `timeline`, each result has the start and end of every op and transfer. The simulation of a step stops as soon as it is certain
    to exceed `limit_ns`; its result is then infeasible and has no step time. Raises ValueError where a placement has another number of
    ops than the problem or an unknown device.
    """
    if not placements:
        return ()
    for placement in placements:
        _require_cover(problem, placement.device)
        if placement.priority is not None and placement.priority.shape != placement.device.shape:
            raise ValueError(f"priority: {len(placement.priority)} entries for {problem.num_ops} ops")
    device = np.stack([placement.device for placement in placements]).astype(np.uint32)
    trace = _empty_trace(problem, len(placements) if timeline else 0)

    def priority(low: int, high: int) -> Int64[np.ndarray, "rows ops"]:
        return _priorities(problem, placements[low:high], device[low:high])

    steps = _run(problem, device, priority, trace, usable_cores(), NO_LIMIT if limit_ns is None else limit_ns)
    return tuple(_result(problem, placement, steps, trace, sample, limit_ns) for sample, placement in enumerate(placements))


def simulate_devices(
    problem: Problem, device: Int32[np.ndarray, "samples ops"], schedule: Schedule = "critical-path", *, threads: int | None = None
) -> Steps:
    """Simulates one step for every row of `device`, all under `schedule`. Returns arrays and no reasons, which is faster than `simulate`.

    `threads` is the number of threads; None uses all cores. Raises ValueError where a row does not fit the problem, and for the schedule
    `given`, which needs priorities.
    """
    if schedule not in RULES:
        raise ValueError(f"schedule: {schedule!r} needs priorities; use simulate")
    _require_cover(problem, device)
    rows = device.astype(np.uint32)

    def priority(low: int, high: int) -> Int64[np.ndarray, "rows ops"]:
        return computed(problem, [schedule] * (high - low), rows[low:high])

    return _run(problem, rows, priority, _empty_trace(problem, 0), threads or usable_cores())


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _require_cover(problem: Problem, device: Int32[np.ndarray, "*samples ops"]) -> None:
    if device.shape[-1] != problem.num_ops:
        raise ValueError(f"device: {device.shape[-1]} entries for the {problem.num_ops} ops of {problem.graph.name}")
    if device.size and (device.min() < 0 or device.max() >= problem.num_devices):
        wrong = device.min() if device.min() < 0 else device.max()
        raise ValueError(f"device: {wrong} is none of the {problem.num_devices} devices of {problem.cluster.name}")


def _priorities(problem: Problem, placements: Sequence[Placement], device: UInt32[np.ndarray, "rows ops"]) -> Int64[np.ndarray, "rows ops"]:
    rows = computed(problem, [placement.schedule for placement in placements], device)
    for row, placement in zip(rows, placements, strict=True):
        if placement.priority is not None:
            row[:] = placement.priority
    return rows


def _empty_trace(problem: Problem, rows: int) -> Trace:
    most = int(np.count_nonzero(problem.graph.edge_output >= 0))
    start_ns, end_ns = np.empty((2, rows, problem.num_ops), dtype=np.int64)
    return Trace(start_ns, end_ns, np.empty((rows, most, 7), dtype=np.int64))


def _run(
    problem: Problem,
    device: UInt32[np.ndarray, "samples ops"],
    priority: Callable[[int, int], Int64[np.ndarray, "rows ops"]],
    trace: Trace,
    threads: int,
    limit_ns: int = NO_LIMIT,
) -> Steps:
    """Simulates rows in tasks of a few samples. The thread of a task computes its priorities, by `priority(low, high)`."""
    samples, steps, prepared = len(device), _empty_steps(problem, len(device)), tables(problem)
    least = max(1, MIN_OPS_PER_TASK // problem.num_ops)
    size = max(least, min(MAX_SAMPLES_PER_TASK, -(-samples // (4 * threads))))

    tasks = iter(range(0, samples, size))

    def work() -> None:
        with borrowed_scratch(problem) as own:
            for low in tasks:  # threads share the iterator; each takes the next task
                rows = slice(low, min(low + size, samples))
                part, traced = Steps(*(column[rows] for column in steps)), Trace(*(column[rows] for column in trace))
                simulate_rows(prepared, device[rows], priority(low, rows.stop), limit_ns, own, part, traced)

    if threads == 1 or samples <= size:
        work()
    else:
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(work) for _ in range(threads)]:
                future.result()
    return steps


def _empty_steps(problem: Problem, samples: int) -> Steps:
    def column(*shape: int) -> Int64[np.ndarray, "*shape"]:
        return np.zeros((samples, *shape), dtype=np.int64)

    flags = np.zeros(samples, dtype=bool), np.zeros(samples, dtype=bool)
    devices, channels = problem.num_devices, problem.cluster.num_channels
    return Steps(column(), *flags, column(devices), column(devices), column(), column(), column(channels))


def _result(problem: Problem, placement: Placement, steps: Steps, trace: Trace, sample: int, limit_ns: int | None) -> StepResult:
    legal, linked, time_ns = bool(steps.legal[sample]), bool(steps.linked[sample]), int(steps.step_time_ns[sample])
    ended = linked and time_ns != NEVER
    peak = steps.peak_memory_bytes[sample].copy() if ended else None
    reason = None if legal and linked else check(problem, placement)
    assert (reason is None) == (legal and linked)
    if reason is None and peak is not None:
        reason = _overflow(problem, peak)
    if reason is None and not ended:
        reason = f"time: the step takes more than {limit_ns} ns"
    return StepResult(
        schedule=placement.schedule,
        step_time_ns=time_ns if ended else None,
        infeasible=reason,
        peak_memory_bytes=peak,
        busy_ns=steps.busy_ns[sample].copy(),
        transferred_bytes=int(steps.transferred_bytes[sample]),
        transfers=int(steps.transfers[sample]),
        occupied_ns=steps.occupied_ns[sample].copy() if ended else None,
        timeline=_timeline(steps, trace, sample) if ended and len(trace.start_ns) else None,
    )


def _overflow(problem: Problem, peak: Int64[np.ndarray, " devices"]) -> str | None:
    over = peak - problem.cluster.memory_bytes
    names = problem.cluster.device_names
    parts = [f"{names[d]} needs {over[d]} bytes more than its {problem.cluster.memory_bytes[d]}" for d in np.flatnonzero(over > 0)]
    return f"memory: {', '.join(parts)}" if parts else None


def _timeline(steps: Steps, trace: Trace, sample: int) -> Timeline:
    rows = trace.transfer[sample, : int(steps.transfers[sample])]
    output, src, dst, begin, end, receive_begin, receive_end = rows[np.lexsort((rows[:, 2], rows[:, 0], rows[:, 3]))].T
    return Timeline(
        start_ns=trace.start_ns[sample].copy(),
        end_ns=trace.end_ns[sample].copy(),
        transfer_output=output.copy(),
        transfer_src=src.astype(np.int32),
        transfer_dst=dst.astype(np.int32),
        transfer_start_ns=begin.copy(),
        transfer_end_ns=end.copy(),
        receive_start_ns=receive_begin.copy(),
        receive_end_ns=receive_end.copy(),
    )
