"""The simulator: docs/execution-model.md exactly, for many placements of one problem at once.

Samples run in parallel on all cores; results do not depend on the number of cores. An infeasible placement gives a
result that states the reason. A placement with the wrong shape or an unknown device raises ValueError. Samples with
different fusions run in parallel too: the kernel gets the fused problem of each (`gnnplace.fused`), and the results are
translated to the original ops.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, UInt32

from gnnplace.fused import Fused, fused_or_refusal
from gnnplace.placement import RULES, Placement, Schedule, check, torn
from gnnplace.problems import Problem
from gnnplace.result import StepResult, Timeline
from gnnplace.schedules.priorities import computed
from gnnplace.simulator.kernel import NO_LIMIT, STUCK, simulate_rows
from gnnplace.simulator.tables import Steps, Timelines, borrowed_scratch, tables

MIN_OPS_PER_TASK = 20_000  # about 6 ms; for smaller tasks the overhead of a thread exceeds the gain
MAX_SAMPLES_PER_TASK = 16


class Batch(NamedTuple):
    """Samples of one problem; `priority(low, high)` computes the priorities of rows.

    If the samples run in order, a row of `sequence` has all ops by priority. The kernel fills `steps` and `trace`.
    """

    problem: Problem
    device: UInt32[np.ndarray, "samples ops"]
    sequence: UInt32[np.ndarray, "samples ops_or_none"]
    priority: Callable[[int, int], Int64[np.ndarray, "rows ops"]]
    steps: Steps
    trace: Timelines


def simulate(
    problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
) -> tuple[StepResult, ...]:
    """Simulates one step of every placement; the results are in the order of the placements.

    With `timeline`, each result has the start and end of every op and transfer. The simulation of a step stops as soon
    as it is certain to exceed `limit_ns`; its result is then infeasible and has no step time. Raises ValueError where a
    placement has another number of ops than the problem or an unknown device.
    """
    if not placements:
        return ()
    for placement in placements:
        _require_cover(problem, placement.device)
        if placement.priority is not None and placement.priority.shape != placement.device.shape:
            raise ValueError(f"priority: {len(placement.priority)} entries for {problem.num_ops} ops")
    shared, stepless = _alike(problem, placements)
    batches = [
        _batch(problem, fused, [placements[number] for number in numbers], timeline)
        for (fused, _), numbers in shared.items()
    ]
    _run(batches, usable_cores(), NO_LIMIT if limit_ns is None else limit_ns)
    results = {number: _stepless(problem, placements[number], reason) for number, reason in stepless.items()}
    for ((fused, _), numbers), batch in zip(shared.items(), batches, strict=True):
        for sample, number in enumerate(numbers):
            results[number] = _result(problem, placements[number], fused, batch, sample, limit_ns)
    return tuple(results[number] for number in range(len(placements)))


def simulate_devices(
    problem: Problem,
    device: Int32[np.ndarray, "samples ops"],
    schedule: Schedule = "critical-path",
    *,
    threads: int | None = None,
) -> Steps:
    """Simulates one step for every row of `device`, all under `schedule`.

    It returns arrays without reasons, which is faster than `simulate`. `threads` is the number of threads; None uses
    all cores. Raises ValueError if a row does not fit the problem, and for the schedule `given`, which needs
    priorities.
    """
    if schedule not in RULES:
        raise ValueError(f"schedule: {schedule!r} needs priorities; use simulate")
    _require_cover(problem, device)
    rows = device.astype(np.uint32)

    def priority(low: int, high: int) -> Int64[np.ndarray, "rows ops"]:
        return computed(problem, [schedule] * (high - low), rows[low:high])

    sequence = np.zeros((len(rows), 0), dtype=np.uint32)
    batch = Batch(problem, rows, sequence, priority, _empty_steps(problem, len(rows)), _empty_trace(problem, 0))
    _run([batch], threads or usable_cores())
    return batch.steps


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _require_cover(problem: Problem, device: Int32[np.ndarray, "*samples ops"]) -> None:
    if device.shape[-1] != problem.num_ops:
        raise ValueError(f"device: {device.shape[-1]} entries for the {problem.num_ops} ops of {problem.graph.name}")
    if device.size and (device.min() < 0 or device.max() >= problem.num_devices):
        wrong = device.min() if device.min() < 0 else device.max()
        raise ValueError(f"device: {wrong} is none of the {problem.num_devices} devices of {problem.cluster.name}")


def _priorities(
    problem: Problem,
    placements: Sequence[Placement],
    device: UInt32[np.ndarray, "rows ops"],
    sequence: UInt32[np.ndarray, "rows ops_or_none"],
) -> Int64[np.ndarray, "rows ops"]:
    rows = computed(problem, [placement.schedule for placement in placements], device)
    for row, placement, ops in zip(rows, placements, sequence, strict=True):
        if len(ops):  # ties as in the sequence
            row[ops] = np.arange(len(ops))[::-1]
        elif placement.priority is not None:
            row[:] = placement.priority
    return rows


def _empty_trace(problem: Problem, rows: int) -> Timelines:
    most = int(np.count_nonzero(problem.graph.edge_output >= 0))
    start_ns, end_ns = np.empty((2, rows, problem.num_ops), dtype=np.int64)
    return Timelines(start_ns, end_ns, np.empty((rows, most, 7), dtype=np.int64))


def _alike(
    problem: Problem, placements: Sequence[Placement]
) -> tuple[dict[tuple[Fused | None, bool], list[int]], dict[int, str]]:
    """The numbers of the placements of each fusion (None for no fusion) that run in order, and of those that don't.

    Placements without a step have reasons instead.
    """
    cache: dict[bytes, Fused | str] = {}
    shared: dict[tuple[Fused | None, bool], list[int]] = {}
    stepless: dict[int, str] = {}
    for number, placement in enumerate(placements):
        fused: Fused | str | None = None
        if placement.fusion is not None:
            key = placement.fusion.tobytes()
            fused = cache[key] = cache.get(key) or fused_or_refusal(problem, placement.fusion)
        reason = fused if isinstance(fused, str) else torn(problem, placement)
        if reason is not None or isinstance(fused, str):
            stepless[number] = str(reason)
        else:
            shared.setdefault((fused, placement.schedule == "in-order"), []).append(number)
    return shared, stepless


def _batch(problem: Problem, fused: Fused | None, placements: Sequence[Placement], timeline: bool) -> Batch:
    """The batch of placements of one fusion, all in order or none."""
    if fused is not None:
        problem, placements = fused.problem, [fused.contracted(placement) for placement in placements]
    device = np.stack([placement.device for placement in placements]).astype(np.uint32)
    sequence = _sequence(placements)

    def priority(low: int, high: int) -> Int64[np.ndarray, "rows ops"]:
        return _priorities(problem, placements[low:high], device[low:high], sequence[low:high])

    return Batch(
        problem,
        device,
        sequence,
        priority,
        _empty_steps(problem, len(device)),
        _empty_trace(problem, len(device) if timeline else 0),
    )


def _sequence(placements: Sequence[Placement]) -> UInt32[np.ndarray, "samples ops_or_none"]:
    """All ops by priority, the first on a tie, for placements in order; nothing for others."""
    if placements[0].schedule != "in-order":
        return np.zeros((len(placements), 0), dtype=np.uint32)
    given = {id(row): row for row in (placement.priority for placement in placements) if row is not None}
    sequence = {number: np.argsort(~row, kind="stable").astype(np.uint32) for number, row in given.items()}
    return np.stack([sequence[id(placement.priority)] for placement in placements])


def _run(batches: Sequence[Batch], threads: int, limit_ns: int = NO_LIMIT) -> None:
    """Simulates the rows of all batches in tasks of a few samples. The thread of a task computes its priorities."""
    samples = sum(len(batch.device) for batch in batches)
    pieces = [(tables(batch.problem), batch, rows) for batch in batches for rows in _pieces(batch, samples, threads)]
    tasks = iter(pieces)

    def work() -> None:
        for prepared, batch, rows in tasks:  # threads share the iterator; each takes the next task
            with borrowed_scratch(batch.problem) as memory:
                part, traced = (
                    type(columns)(*(column[rows] for column in columns)) for columns in (batch.steps, batch.trace)
                )
                priority = batch.priority(rows.start, rows.stop)
                simulate_rows(
                    prepared, batch.device[rows], priority, batch.sequence[rows], limit_ns, memory, part, traced
                )

    if threads == 1 or len(pieces) <= 1:
        work()
    else:
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(work) for _ in range(threads)]:
                future.result()


def _pieces(batch: Batch, samples: int, threads: int) -> list[slice]:
    """The rows of each task of a batch, of so many samples in all."""
    least, rows = max(1, MIN_OPS_PER_TASK // batch.problem.num_ops), len(batch.device)
    size = max(least, min(MAX_SAMPLES_PER_TASK, -(-samples // (4 * threads))))
    return [slice(low, min(low + size, rows)) for low in range(0, rows, size)]


def _empty_steps(problem: Problem, samples: int) -> Steps:
    def column(*shape: int) -> Int64[np.ndarray, "*shape"]:
        return np.zeros((samples, *shape), dtype=np.int64)

    flags = np.zeros(samples, dtype=bool), np.zeros(samples, dtype=bool)
    devices, channels = problem.num_devices, problem.cluster.num_channels
    return Steps(column(), *flags, column(devices), column(devices), column(), column(), column(channels))


def _stepless(problem: Problem, placement: Placement, reason: str) -> StepResult:
    """The result of a placement without a step, because its fusion is not allowed."""
    busy = np.zeros(problem.num_devices, dtype=np.int64)
    np.add.at(busy, placement.device, problem.time_ns[np.arange(problem.num_ops), placement.device])
    return StepResult(placement.schedule, None, reason, None, busy, 0, 0)


def _result(
    problem: Problem, placement: Placement, fused: Fused | None, batch: Batch, sample: int, limit_ns: int | None
) -> StepResult:
    steps, trace = batch.steps, batch.trace
    legal, linked, time_ns = bool(steps.legal[sample]), bool(steps.linked[sample]), int(steps.step_time_ns[sample])
    ended = linked and time_ns < STUCK
    peak = steps.peak_memory_bytes[sample].copy() if ended else None
    reason = None if legal and linked else check(problem, placement)
    assert (reason is None) == (legal and linked)
    if reason is None and peak is not None:
        reason = _overflow(problem, peak)
    if reason is None and time_ns == STUCK:
        reason = "in-order: devices wait for one another forever"
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
        timeline=_timeline(steps, trace, fused, sample) if ended and len(trace.start_ns) else None,
    )


def _overflow(problem: Problem, peak: Int64[np.ndarray, " devices"]) -> str | None:
    over = peak - problem.cluster.memory_bytes
    names = problem.cluster.device_names
    parts = [
        f"{names[d]} needs {over[d]} bytes more than its {problem.cluster.memory_bytes[d]}"
        for d in np.flatnonzero(over > 0)
    ]
    return f"memory: {', '.join(parts)}" if parts else None


def _timeline(steps: Steps, trace: Timelines, fused: Fused | None, sample: int) -> Timeline:
    """The timeline of all ops. The ops of a fused op start and end together."""
    rows = trace.transfer[sample, : int(steps.transfers[sample])]
    start_ns, end_ns = trace.start_ns[sample].copy(), trace.end_ns[sample].copy()
    if fused is not None:
        rows[:, 0], start_ns, end_ns = fused.output[rows[:, 0]], start_ns[fused.op], end_ns[fused.op]
    output, src, dst, begin, end, receive_begin, receive_end = rows[np.lexsort((rows[:, 2], rows[:, 0], rows[:, 3]))].T
    return Timeline(
        start_ns=start_ns,
        end_ns=end_ns,
        transfer_output=output.copy(),
        transfer_src=src.astype(np.int32),
        transfer_dst=dst.astype(np.int32),
        transfer_start_ns=begin.copy(),
        transfer_end_ns=end.copy(),
        receive_start_ns=receive_begin.copy(),
        receive_end_ns=receive_end.copy(),
    )
