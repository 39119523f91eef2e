"""The simulator: EXECUTION_MODEL.md exactly, for many placements of one problem at once.

Samples run in parallel on all cores, and their results don't depend on how many there are. An infeasible placement is
a result with its reason; a placement that does not fit the problem is a ValueError.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.evaluate.kernel import CRITICAL_PATH, FIFO, GIVEN, Steps, Trace, simulate_rows
from gnnplace.evaluate.tables import tables
from gnnplace.placement import Placement, Schedule, check
from gnnplace.problem import Problem
from gnnplace.result import StepResult, Timeline

SCHEDULE_CODES: dict[Schedule, int] = {"fifo": FIFO, "critical-path": CRITICAL_PATH, "given": GIVEN}
MIN_OPS_PER_TASK = 20_000  # a task below this many ops (about 5 ms) costs more to hand out than it saves


def simulate(problem: Problem, placements: Sequence[Placement], *, timeline: bool = False) -> tuple[StepResult, ...]:
    """One simulated step of every placement, in their order; with `timeline`, when each op and transfer ran.

    Raises ValueError where a placement does not cover the problem.
    """
    if not placements:
        return ()
    for placement in placements:
        _require_cover(problem, placement.device)
    device = np.stack([placement.device for placement in placements])
    schedule = np.array([SCHEDULE_CODES[placement.schedule] for placement in placements], dtype=np.int8)
    trace = _empty_trace(problem, len(placements) if timeline else 0)
    steps = _run(problem, device, schedule, _stack_priorities(problem, placements), trace, usable_cores())
    return tuple(_result(problem, placement, steps, trace, sample) for sample, placement in enumerate(placements))


def simulate_devices(
    problem: Problem, device: Int32[np.ndarray, "samples ops"], schedule: Schedule = "critical-path", *, threads: int | None = None
) -> Steps:
    """The same as arrays and without reasons, for searches: see `feasible`. `schedule` is not `given`; `threads` None = all cores.

    Raises ValueError where the devices don't cover the problem or the schedule needs priorities.
    """
    if schedule not in ("fifo", "critical-path"):
        raise ValueError(f"schedule: {schedule!r} needs priorities; use simulate")
    _require_cover(problem, device)
    codes = np.full(len(device), SCHEDULE_CODES[schedule], dtype=np.int8)
    priority = np.empty((0, problem.num_ops), dtype=np.int64)
    rows = np.array(device, dtype=np.int32)
    return _run(problem, rows, codes, priority, _empty_trace(problem, 0), threads or usable_cores())


def feasible(problem: Problem, steps: Steps) -> Bool[np.ndarray, " samples"]:
    """Which samples are legal, have all their links and fit every memory."""
    return steps.legal & steps.linked & (steps.peak_memory_bytes <= problem.cluster.memory_bytes).all(axis=1)


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _require_cover(problem: Problem, device: Int32[np.ndarray, "*samples ops"]) -> None:
    if device.shape[-1] != problem.num_ops:
        raise ValueError(f"device: {device.shape[-1]} entries for the {problem.num_ops} ops of {problem.graph.name}")
    if device.size and (device.min() < 0 or device.max() >= problem.num_devices):
        wrong = device.min() if device.min() < 0 else device.max()
        raise ValueError(f"device: {wrong} is none of the {problem.num_devices} devices of {problem.cluster.name}")


def _stack_priorities(problem: Problem, placements: Sequence[Placement]) -> Int64[np.ndarray, "rows ops"]:
    if all(placement.priority is None for placement in placements):
        return np.empty((0, problem.num_ops), dtype=np.int64)
    rows = np.zeros((len(placements), problem.num_ops), dtype=np.int64)
    for row, placement in zip(rows, placements, strict=True):
        if placement.priority is not None:
            if placement.priority.shape != row.shape:
                raise ValueError(f"priority: {placement.priority.shape[0]} entries for {problem.num_ops} ops")
            row[:] = placement.priority
    return rows


def _empty_trace(problem: Problem, rows: int) -> Trace:
    most = int(np.count_nonzero(problem.graph.edge_output >= 0))
    return Trace(np.empty((rows, problem.num_ops), dtype=np.int64), np.empty((rows, most, 5), dtype=np.int64))


def _run(
    problem: Problem,
    device: Int32[np.ndarray, "samples ops"],
    schedule: np.ndarray,
    priority: Int64[np.ndarray, "rows ops"],
    trace: Trace,
    threads: int,
) -> Steps:
    samples, steps, prepared = len(device), _empty_steps(problem, len(device)), tables(problem)
    least = -(-MIN_OPS_PER_TASK // problem.num_ops)
    size = max(least, -(-samples // (4 * threads))) if threads > 1 else max(1, samples)
    tasks = [(low, min(low + size, samples)) for low in range(0, samples, size)]

    def work(task: tuple[int, int]) -> None:
        simulate_rows(prepared, device, schedule, priority, *task, steps, trace)

    if threads == 1 or len(tasks) == 1:
        for task in tasks:
            work(task)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, tasks))
    return steps


def _empty_steps(problem: Problem, samples: int) -> Steps:
    def column(*shape: int) -> Int64[np.ndarray, "*shape"]:
        return np.zeros((samples, *shape), dtype=np.int64)

    flags = np.zeros(samples, dtype=bool), np.zeros(samples, dtype=bool)
    return Steps(column(), *flags, column(problem.num_devices), column(problem.num_devices), column(), column())


def _result(problem: Problem, placement: Placement, steps: Steps, trace: Trace, sample: int) -> StepResult:
    legal, linked = bool(steps.legal[sample]), bool(steps.linked[sample])
    peak = steps.peak_memory_bytes[sample].copy() if linked else None
    reason = None if legal and linked else check(problem, placement)
    assert (reason is None) == (legal and linked)
    if reason is None and peak is not None:
        reason = _overflow(problem, peak)
    return StepResult(
        schedule=placement.schedule,
        step_time_ns=int(steps.step_time_ns[sample]) if linked else None,
        infeasible=reason,
        peak_memory_bytes=peak,
        busy_ns=steps.busy_ns[sample].copy(),
        transferred_bytes=int(steps.transferred_bytes[sample]),
        transfers=int(steps.transfers[sample]),
        timeline=_timeline(problem, placement, steps, trace, sample) if linked and len(trace.start_ns) else None,
    )


def _overflow(problem: Problem, peak: Int64[np.ndarray, " devices"]) -> str | None:
    over = peak - problem.cluster.memory_bytes
    names = problem.cluster.device_names
    parts = [f"{names[d]} needs {over[d]} bytes more than its {problem.cluster.memory_bytes[d]}" for d in np.flatnonzero(over > 0)]
    return f"memory: {', '.join(parts)}" if parts else None


def _timeline(problem: Problem, placement: Placement, steps: Steps, trace: Trace, sample: int) -> Timeline:
    start = trace.start_ns[sample].copy()
    rows = trace.transfer[sample, : int(steps.transfers[sample])]
    output, src, dst, begin, end = rows[np.lexsort((rows[:, 2], rows[:, 0], rows[:, 3]))].T
    return Timeline(
        start_ns=start,
        end_ns=start + problem.time_ns[np.arange(problem.num_ops), placement.device],
        transfer_output=output.copy(),
        transfer_src=src.astype(np.int32),
        transfer_dst=dst.astype(np.int32),
        transfer_start_ns=begin.copy(),
        transfer_end_ns=end.copy(),
    )
