"""Real step times for a learner: each placement is started on this machine, timed and ended, and never measured twice.

What is measured: the step time (the median of the protocol's steps), the peak memory (of one more step), how long each device was busy
(from the op times of one more). The simulator, which comes as an argument, says in which order ops run, what is legal, and how much is
transferred. Losses are not compared here, which would take longer than the steps; `compare` does, for the two placements that it times.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import astuple, replace
from hashlib import sha256
from typing import Any

import numpy as np
from jaxtyping import Int64

from gnnplace.execution.host import Host
from gnnplace.execution.ledger import KEY, Ledger, Record
from gnnplace.execution.measure import fitting_peaks, measure
from gnnplace.execution.timing import STEADY, Protocol, timed
from gnnplace.execution.workload import Plan, plan
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult

LOSES_HOST = ("timeout", "crash")  # outcomes after which a host may be busy with what nobody waits for
POLICY, HEURISTICS = "policy", "heuristics"  # for whom something is measured
RECORDS = 3  # the version of all records, part of their keys: 1 had placements as `ok` whose peaks exceed their devices, 2 nobody's names
COMPARISON_LIMITS = 5  # a placement may take so many times as long in a comparison


class LastingHost:
    """A host that is opened when it is first asked for, and again after it was closed."""

    def __init__(self, open_host: Callable[[], Host]) -> None:
        self._open = open_host
        self._host: Host | None = None

    def __call__(self) -> Host:
        """The host. Raises what opening it raises."""
        if self._host is None:
            self._host = self._open()
        return self._host

    def close(self) -> None:
        """Ends it and what runs in it."""
        if self._host is not None:
            self._host.close()
            self._host = None


class MeasuredEvaluator:
    """An `Evaluator` of placements on this machine. `hosts` are those of the workloads, by the sha256 of their graphs.

    A placement that comes to another outcome than `ok` within `limit_s` seconds is infeasible with `outcome: reason`, and stays so:
    the ledger keeps every outcome. A key is of all that a step time depends on: graph, cluster and costs (they make the order), devices,
    schedule, priorities, protocol, hardware.
    """

    def __init__(
        self,
        hosts: Mapping[str, LastingHost],
        simulate: Evaluator,
        ledger: Ledger,
        protocol: Protocol,
        limit_s: float,
        hardware: str,
    ) -> None:
        self._hosts, self._simulate, self._ledger = hosts, simulate, ledger
        self._protocol, self._limit_s, self._hardware, self._by = protocol, limit_s, hardware, POLICY

    def of(self, by: str) -> MeasuredEvaluator:
        """The same, for placements of somebody else than the policy, whose name is kept with what is measured."""
        other = copy(self)
        other._by = by
        return other

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        """Measures those that were not, one after another, whatever `limit_ns` says: what is measured is kept.

        Raises MeasurementError where the workload itself can't be loaded again.
        """
        if timeline:
            raise ValueError("timeline: a measured step has none; the simulator has")
        simulated = self._simulate(problem, placements)
        return tuple(self._result(problem, *pair) for pair in zip(placements, simulated, strict=True))

    def measured(self, problem: Problem, by: str | None = None) -> list[Placement]:
        """Every placement of a problem that was measured, for whom `by` names where it is given, in the order of first measurements."""
        records = [record for record in self._ledger if record.get("graph") == problem.graph.sha256 and by in (None, record.get("by"))]
        placements = ((record[KEY], _unpacked(record)) for record in records)
        return [placement for key, placement in placements if key == self.key(problem, placement)]

    def compare(self, problem: Problem, placements: Sequence[Placement], purpose: str) -> list[list[int]]:
        """Steps of each, timed in turns by the protocol *steady* and proved to compute the same as the unplaced step; kept, too, for this
        purpose and no other: who was chosen by a measurement is flattered by it.

        Raises MeasurementError with the outcome of the first that fails.
        """
        key = _digest(purpose, *(self.key(problem, placement) for placement in placements), STEADY)
        record = self._ledger.find(key)
        if record is None:
            plans = [self._plan(problem, placement) for placement in placements]

            def act(host: Host) -> Record:
                return {"step_ns": [list(found.step_ns) for found in measure(host, plans, STEADY)]}

            record = self._ledger.add(key, self._attempt(problem, COMPARISON_LIMITS * len(placements) * self._limit_s, act))
        if record["outcome"] != "ok":
            raise MeasurementError(record["outcome"], record["reason"])
        found: list[list[int]] = record["step_ns"]
        return found

    def key(self, problem: Problem, placement: Placement) -> str:
        """What a measurement is found by."""
        order = placement.device, placement.priority, problem.time_ns
        return _digest(RECORDS, problem.graph.sha256, problem.cluster.sha256, placement.schedule, self._protocol, self._hardware, *order)

    def _result(self, problem: Problem, placement: Placement, simulated: StepResult) -> StepResult:
        illegal = check(problem, placement)
        if illegal is not None:
            return _infeasible(simulated, illegal)
        key = self.key(problem, placement)
        record = self._ledger.find(key)
        if record is None:
            what = {"graph": problem.graph.sha256, "by": self._by, **_packed(placement)}
            record = self._ledger.add(key, {**what, **self._measure(problem, placement)})
        if record["outcome"] != "ok":
            return _infeasible(simulated, f"{record['outcome']}: {record['reason']}")
        peak, busy = (np.array(record[name], dtype=np.int64) for name in ("peak_memory_bytes", "busy_ns"))
        median = int(np.median(record["step_ns"]))
        return replace(simulated, step_time_ns=median, infeasible=None, peak_memory_bytes=peak, busy_ns=busy, occupied_ns=None)

    def _measure(self, problem: Problem, placement: Placement) -> Record:
        """Times one placement. A host that can't be loaded is not the placement's fault: that is raised."""
        placed = self._plan(problem, placement)

        def act(host: Host) -> Record:
            step = host.start(placed)
            try:
                (times,) = timed([step.run], self._protocol)
                (ops,) = step.op_times(1)
                busy = _busy_ns(problem, placement, ops.end_ns - ops.start_ns)
                peaks = [int(peak) for peak in fitting_peaks(step, placed)]
                return {"step_ns": times, "peak_memory_bytes": peaks, "busy_ns": busy.tolist()}
            finally:
                step.close()

        return self._attempt(problem, self._limit_s, act)

    def _attempt(self, problem: Problem, limit_s: float, act: Callable[[Host], Record]) -> Record:
        """What `act` finds on the problem's host, or the outcome that it comes to."""
        lasting = self._hosts[problem.graph.sha256]
        host = lasting()
        host.allow(limit_s)
        try:
            return {"outcome": "ok", **act(host)}
        except MeasurementError as failed:
            if failed.outcome in LOSES_HOST or not host.alive:
                lasting.close()
            return {"outcome": failed.outcome, "reason": failed.reason}

    def _plan(self, problem: Problem, placement: Placement) -> Plan:
        (simulated,) = self._simulate(problem, [placement], timeline=True)
        assert simulated.timeline is not None
        return plan(problem, placement, simulated.timeline)


def _infeasible(simulated: StepResult, reason: str) -> StepResult:
    """A step that didn't run: it took no time, kept no device busy and had no peak."""
    idle = np.zeros_like(simulated.busy_ns)
    return replace(simulated, step_time_ns=None, infeasible=reason, peak_memory_bytes=None, busy_ns=idle, occupied_ns=None)


def _busy_ns(problem: Problem, placement: Placement, lasted_ns: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " devices"]:
    busy = np.zeros(problem.num_devices, dtype=np.int64)
    np.add.at(busy, placement.device, lasted_ns)
    return busy


def _digest(*parts: object) -> str:
    digest = sha256()
    for part in parts:
        what = part if isinstance(part, np.ndarray) else astuple(part) if isinstance(part, Protocol) else part
        content = np.ascontiguousarray(what).astype("<i8").tobytes() if isinstance(what, np.ndarray) else repr(what).encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _packed(placement: Placement) -> dict[str, Any]:
    priority = None if placement.priority is None else _text(placement.priority)
    return {"schedule": placement.schedule, "device": _text(placement.device), "priority": priority}


def _unpacked(record: Record) -> Placement:
    priority = None if record["priority"] is None else _array(record["priority"])
    return Placement(_array(record["device"]).astype(np.int32), record["schedule"], priority)


def _text(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(values.astype("<i8").tobytes())).decode()


def _array(text: str) -> Int64[np.ndarray, " ops"]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i8").astype(np.int64)
