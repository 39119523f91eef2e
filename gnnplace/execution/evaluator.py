"""An `Evaluator` that measures: it starts each placement on this machine and times it, and never measures one twice.

It measures the step time (the median of the protocol's steps), the peak memory (in one more step) and the busy time of
each device (from the op times of one more step). The simulator, an argument, decides the order of ops, feasibility and
the transferred bytes. Only `compare` checks outputs against the unplaced step, because the check takes longer than the
steps.
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
from gnnplace.execution.workload import ExecutionPlan, plan
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult

LOSES_HOST = ("timeout", "crash")  # outcomes that may leave the host busy
POLICY, HEURISTICS = "policy", "heuristics"  # who proposed a measured placement
# the version of all records, part of their keys. Version 1 accepted peaks above a device's memory; 2 had no `by`
RECORDS = 3
COMPARISON_LIMITS = 5  # time limit of a placement in a comparison, as a multiple of `limit_s`


class LastingHost:
    """A host that is opened on first use, and reopened on the first use after `close`."""

    def __init__(self, open_host: Callable[[], Host]) -> None:
        self._open = open_host
        self._host: Host | None = None

    def __call__(self) -> Host:
        """The open host. Raises what opening it raises."""
        if self._host is None:
            self._host = self._open()
        return self._host

    def close(self) -> None:
        """Closes the host, if it is open."""
        if self._host is not None:
            self._host.close()
            self._host = None


class MeasuredEvaluator:
    """Measures placements on this machine. `hosts` maps the sha256 of a graph to the host of its workload.

    A placement whose outcome within `limit_s` seconds is not `ok` is infeasible, with the reason `outcome: reason`. The
    ledger keeps every outcome, so no placement is measured again. A record's key covers everything that a step time
    depends on: graph, cluster, costs, devices, schedule, priorities, protocol and hardware.
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
        """The same evaluator for placements proposed by `by`; the ledger records that name (by default `policy`)."""
        other = copy(self)
        other._by = by
        return other

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        """The results of the placements; those not in the ledger are measured, one after another. Ignores `limit_ns`.

        A `timeline` is the simulator's: of a real step only the ops' own times are known, not what they waited for.
        Raises ValueError for ops that run fused, MeasurementError if the workload can't be loaded again.
        """
        if any(placement.fusion is not None for placement in placements):
            raise ValueError("fusion: a measured step runs each op by itself; use the simulator")
        simulated = self._simulate(problem, placements, timeline=timeline)
        return tuple(self._result(problem, *pair) for pair in zip(placements, simulated, strict=True))

    def measured(self, problem: Problem, by: str | None = None) -> list[Placement]:
        """The measured placements of a problem, oldest first; only those proposed by `by` if it is given."""
        records = [
            record
            for record in self._ledger
            if record.get("graph") == problem.graph.sha256 and by in (None, record.get("by"))
        ]
        placements = ((record[KEY], _unpacked(record)) for record in records)
        return [placement for key, placement in placements if key == self.key(problem, placement)]

    def compare(self, problem: Problem, placements: Sequence[Placement], purpose: str) -> list[list[int]]:
        """The step times (ns) of several placements, timed in turns (*steady*) and checked against the unplaced step.

        The record is kept for this `purpose` alone: reusing the measurement that selected a placement would favour that
        placement. Raises MeasurementError with the outcome of the first placement that fails.
        """
        key = _digest(purpose, *(self.key(problem, placement) for placement in placements), STEADY)
        record = self._ledger.find(key)
        if record is None:
            plans = [self._plan(problem, placement) for placement in placements]

            def act(host: Host) -> Record:
                return {"step_ns": [list(steps.step_ns) for steps in measure(host, plans, STEADY)]}

            record = self._ledger.add(
                key, self._attempt(problem, COMPARISON_LIMITS * len(placements) * self._limit_s, act)
            )
        if record["outcome"] != "ok":
            raise MeasurementError(record["outcome"], record["reason"])
        step_ns: list[list[int]] = record["step_ns"]
        return step_ns

    def key(self, problem: Problem, placement: Placement) -> str:
        """The ledger key of a placement."""
        order = placement.device, placement.priority, problem.time_ns
        return _digest(
            RECORDS,
            problem.graph.sha256,
            problem.cluster.sha256,
            placement.schedule,
            self._protocol,
            self._hardware,
            *order,
        )

    def _result(self, problem: Problem, placement: Placement, simulated: StepResult) -> StepResult:
        """The measured result of a placement, from the ledger if it has one."""
        illegal = check(problem, placement)
        if illegal is not None:
            return _infeasible(simulated, illegal)
        key = self.key(problem, placement)
        record = self._ledger.find(key)
        if record is None:
            proposal = {"graph": problem.graph.sha256, "by": self._by, **_packed(placement)}
            record = self._ledger.add(key, {**proposal, **self._measure(problem, placement)})
        if record["outcome"] != "ok":
            return _infeasible(simulated, f"{record['outcome']}: {record['reason']}")
        peak, busy = (np.array(record[name], dtype=np.int64) for name in ("peak_memory_bytes", "busy_ns"))
        median = int(np.median(record["step_ns"]))
        return replace(
            simulated, step_time_ns=median, infeasible=None, peak_memory_bytes=peak, busy_ns=busy, occupied_ns=None
        )

    def _measure(self, problem: Problem, placement: Placement) -> Record:
        """Measures one placement. Raises MeasurementError only if the host can't be loaded."""
        execution_plan = self._plan(problem, placement)

        def act(host: Host) -> Record:
            step = host.start(execution_plan)
            try:
                (times,) = timed([step.run], self._protocol)
                (ops,) = step.op_times(1)
                busy = _busy_ns(problem, placement, ops.end_ns - ops.start_ns)
                peaks = [int(peak) for peak in fitting_peaks(step, execution_plan)]
                return {"step_ns": times, "peak_memory_bytes": peaks, "busy_ns": busy.tolist()}
            finally:
                step.close()

        return self._attempt(problem, self._limit_s, act)

    def _attempt(self, problem: Problem, limit_s: float, act: Callable[[Host], Record]) -> Record:
        """The record of `act` on the problem's host, or of its failure."""
        lasting = self._hosts[problem.graph.sha256]
        host = lasting()
        host.allow(limit_s)
        try:
            return {"outcome": "ok", **act(host)}
        except MeasurementError as failed:
            if failed.outcome in LOSES_HOST or not host.alive:
                lasting.close()
            return {"outcome": failed.outcome, "reason": failed.reason}

    def _plan(self, problem: Problem, placement: Placement) -> ExecutionPlan:
        (simulated,) = self._simulate(problem, [placement], timeline=True)
        assert simulated.timeline is not None
        return plan(problem, placement, simulated.timeline)


def _infeasible(simulated: StepResult, reason: str) -> StepResult:
    """The result of a step that did not run."""
    idle = np.zeros_like(simulated.busy_ns)
    return replace(
        simulated, step_time_ns=None, infeasible=reason, peak_memory_bytes=None, busy_ns=idle, occupied_ns=None
    )


def _busy_ns(problem: Problem, placement: Placement, op_ns: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " devices"]:
    """The sum of op times on each device."""
    busy = np.zeros(problem.num_devices, dtype=np.int64)
    np.add.at(busy, placement.device, op_ns)
    return busy


def _digest(*parts: object) -> str:
    """A checksum of arrays and of values that `repr` writes alike in every process."""
    digest = sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            content = np.ascontiguousarray(part).astype("<i8").tobytes()
        else:
            content = repr(astuple(part) if isinstance(part, Protocol) else part).encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _packed(placement: Placement) -> dict[str, Any]:
    """A placement as fields of a record."""
    priority = None if placement.priority is None else _text(placement.priority)
    return {"schedule": placement.schedule, "device": _text(placement.device), "priority": priority}


def _unpacked(record: Record) -> Placement:
    priority = None if record["priority"] is None else _array(record["priority"])
    return Placement(_array(record["device"]).astype(np.int32), record["schedule"], priority)


def _text(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(values.astype("<i8").tobytes())).decode()


def _array(text: str) -> Int64[np.ndarray, " ops"]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i8").astype(np.int64)
