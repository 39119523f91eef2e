"""A placed step measured on this machine's devices, in turns with a reference, beside what the simulator says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnplace.execution.host import Host
from gnnplace.execution.measure import Measurement, measure
from gnnplace.execution.timing import Estimate, Protocol, estimate, ratio
from gnnplace.execution.workload import Plan, plan
from gnnplace.placement import Placement, Schedule, check
from gnnplace.problems import Problem
from gnnplace.result import Planner, StepResult
from gnnplace.simulator.simulator import simulate


@dataclass(frozen=True, eq=False)
class MeasuredStep:
    """What a placement takes: `simulated` (of the order in which the executor runs it) and `measured`, beside that of a reference."""

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
        """The reference's step time over this one's, None without a reference."""
        return None if self.reference is None else ratio(self.reference.step_ns, self.measured.step_ns)


def first_device(problem: Problem) -> Placement:
    """Every op on the first device on which it may stand: the usual reference."""
    return Placement(problem.allowed.argmax(axis=1).astype("int32"))


def measured_step(
    host: Host, problem: Problem, planner: Planner, reference: Planner | None, protocol: Protocol, limit_s: float
) -> MeasuredStep:
    """Measures the planner's placement of a problem, the host's graph on a cluster that describes this machine, within `limit_s` seconds.

    Raises ValueError where a placement is illegal, MeasurementError where the step does not run, or computes something else.
    """
    placements = [legal(problem, each(problem)) for each in (planner, reference) if each is not None]
    host.allow(limit_s)
    plans = [planned(problem, placement) for placement in placements]
    simulated = _as_run(host, problem, plans[0], placements[0].schedule)
    found = measure(host, plans, protocol)
    return MeasuredStep(problem, simulated, found[0], found[1] if len(found) > 1 else None)


def legal(problem: Problem, placement: Placement) -> Placement:
    """The placement. Raises ValueError where an executor can't run it: fused ops, what `check` finds."""
    if placement.fusion is not None:
        raise ValueError("fusion: a measured step runs each op by itself")
    if reason := check(problem, placement):
        raise ValueError(f"placement: {reason}")
    return placement


def planned(problem: Problem, placement: Placement) -> Plan:
    """The plan of a placement that is legal."""
    (result,) = simulate(problem, [placement], timeline=True)
    assert result.timeline is not None
    return plan(problem, placement, result.timeline)


def _as_run(host: Host, problem: Problem, plan: Plan, schedule: Schedule) -> StepResult:
    """What the simulator says of a plan as the executor runs it."""
    runs = Problem(host.as_run(plan), problem.cluster, problem.time_ns, problem.contended_ns)
    (result,) = simulate(runs, [Placement(plan.device, "fifo")])
    return replace(result, schedule=schedule)
