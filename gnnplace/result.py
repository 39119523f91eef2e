"""The result of one step of a placed graph, and two protocols: evaluators compute results, planners place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.cluster import NO_CHANNEL, Cluster
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem


@dataclass(frozen=True, eq=False)
class Timeline:
    """The start and end of every op and every transfer of one step, in ns.

    Transfers are in the order of their starts.
    """

    start_ns: Int64[np.ndarray, " ops"]
    end_ns: Int64[np.ndarray, " ops"]
    transfer_output: Int64[np.ndarray, " transfers"]
    transfer_src: Int32[np.ndarray, " transfers"]
    transfer_dst: Int32[np.ndarray, " transfers"]
    transfer_start_ns: Int64[np.ndarray, " transfers"]
    transfer_end_ns: Int64[np.ndarray, " transfers"]  # leaves its channel; the receive channel and the latency follow
    receive_start_ns: Int64[np.ndarray, " transfers"]  # of the receive channel; -1 where the link has none
    receive_end_ns: Int64[np.ndarray, " transfers"]


@dataclass(frozen=True, eq=False)
class StepResult:
    """One step of a placement, simulated or measured.

    `infeasible` is the reason why the placement can't be used, or None. `step_time_ns` and `peak_memory_bytes` are None
    only where a link is missing or the step was cut off at a time limit. `busy_ns` is the time that each device spends
    on ops. `occupied_ns` is the time that each channel spends on transfers, None where an executor can't observe
    channels.
    """

    schedule: Schedule
    step_time_ns: int | None
    infeasible: str | None
    peak_memory_bytes: Int64[np.ndarray, " devices"] | None
    busy_ns: Int64[np.ndarray, " devices"]
    transferred_bytes: int
    transfers: int
    occupied_ns: Int64[np.ndarray, " channels"] | None = None
    timeline: Timeline | None = None

    @property
    def feasible_ns(self) -> int | None:
        """The step time of a feasible placement; None for an infeasible one."""
        return self.step_time_ns if self.infeasible is None else None


def micro_batch_ns(step_ns: int | None, number: int) -> int | None:
    """The time of a step for each of its `number` micro-batches, rounded. It is no latency: micro-batches overlap."""
    return None if step_ns is None else round(step_ns / number)


FEASIBLE, OVERFLOWS, TIMELESS = range(3)


class Score(NamedTuple):
    """The score of a result; the lowest is the best.

    Feasible results come first, by step time. Results that overflow a memory follow, by the excess. Results without a
    time come last. `feasibility` is `FEASIBLE`, `OVERFLOWS` or `TIMELESS`. `excess_bytes` is the sum over devices of
    the bytes beyond their memories.
    """

    feasibility: int
    excess_bytes: int
    step_time_ns: int

    @property
    def limit_ns(self) -> int | None:
        """A longer step than this scores worse.

        None for an overflow, where a longer step with a smaller overflow scores better.
        """
        return self.step_time_ns if self.feasibility == FEASIBLE else None


def score(problem: Problem, result: StepResult) -> Score:
    """The score of a result of `problem`."""
    if result.step_time_ns is None or result.peak_memory_bytes is None:
        return Score(TIMELESS, 0, 0)
    if result.infeasible is None:
        return Score(FEASIBLE, 0, result.step_time_ns)
    excess = np.maximum(0, result.peak_memory_bytes - problem.cluster.memory_bytes)
    return Score(OVERFLOWS, int(excess.sum()), result.step_time_ns)


@dataclass(frozen=True, eq=False)
class LeastTimes:
    """Lower bounds that hold for every step of every feasible placement.

    A step takes at least `step_ns`. An op on a device starts at least `head_ns` after the start of the step and ends at
    least `tail_ns` before its end. Both are `MAX_STEP_NS` where no feasible placement puts the op on the device.
    """

    step_ns: int
    head_ns: Int64[np.ndarray, "ops devices"]
    tail_ns: Int64[np.ndarray, "ops devices"]


@runtime_checkable
class Evaluator(Protocol):
    """Evaluates placements of one problem; the results are in the order of the placements.

    With `timeline`, each result has the start and end of every op and transfer. A step that takes longer than
    `limit_ns` may come back as infeasible and without a time: a search that would reject it saves the rest of its
    evaluation.
    """

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]: ...


@runtime_checkable
class Planner(Protocol):
    """A function from a problem to a placement: a baseline, a search, or a trained policy with a decoder."""

    def __call__(self, problem: Problem) -> Placement: ...


class Proposal(NamedTuple):
    """A placement of another form of a problem: its micro-batches on replicas, or with copies that stand freely."""

    problem: Problem
    placement: Placement


def known(placement: Placement) -> Planner:
    """The planner that always gives this placement."""
    return partial(_known, placement)


def _known(placement: Placement, problem: Problem) -> Placement:
    return placement


class Metrics(NamedTuple):
    """How well one step uses its devices and channels. Shares are from 0 to 1; an unknown value is None.

    - `load_balance`: the mean load of the accelerators over the largest load of all devices. The load of a device is
      its busy time divided by its streams. POP's efficiency metrics define it so (Rosas, Giménez and Labarta, 2014). An
      idle CPU beside accelerators does not lower the balance; a CPU with the largest load does.
    - `communication_share`: the share of the step during which the busiest channel is occupied. At 1 a link is full.
    - `idle_ns`: for each device, the step time minus its load and minus the transfers that the device carries itself,
      if it is a channel.
    - `room`: `1 - bound / step time`, the largest share of the step time that any placement could still save. Only a
      feasible step has one.
    """

    load_balance: float | None
    communication_share: float | None
    idle_ns: Int64[np.ndarray, " devices"] | None
    room: float | None


def metrics(cluster: Cluster, result: StepResult, bound_ns: int) -> Metrics:
    """The metrics of a step on `cluster`; `bound_ns` is a lower bound on the step time of the same problem.

    `load_balance` is None where no op ran. `communication_share` and `idle_ns` are None where the step has no time, or
    where it was measured without a view of its channels.
    """
    load = result.busy_ns / cluster.streams
    balance = float(load[cluster.accelerators].mean() / load.max()) if load.any() else None
    room = None if result.feasible_ns is None else 1 - bound_ns / result.feasible_ns
    step, occupied = result.step_time_ns, result.occupied_ns
    if step is None or occupied is None:
        return Metrics(balance, None, None, room)
    return Metrics(
        balance, int(occupied.max(initial=0)) / step, _idle_ns(cluster, step, result.busy_ns, occupied), room
    )


def _idle_ns(
    cluster: Cluster,
    step_time_ns: int,
    busy_ns: Int64[np.ndarray, " devices"],
    occupied_ns: Int64[np.ndarray, " channels"],
) -> Int64[np.ndarray, " devices"]:
    """The idle time of each device: the mean over its streams, rounded down."""
    copying = np.zeros_like(busy_ns)
    by_itself = cluster.device_channel != NO_CHANNEL
    copying[by_itself] = occupied_ns[cluster.device_channel[by_itself]]
    return (step_time_ns * cluster.streams - busy_ns - copying) // cluster.streams
