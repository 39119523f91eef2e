"""What one step of a placed graph took, and the protocols of those who say so (evaluators) and those who propose (planners)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.cluster import NO_CHANNEL, Cluster
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem


@dataclass(frozen=True, eq=False)
class Timeline:
    """When every op ran and every transfer occupied its channel; transfers in the order in which they started."""

    start_ns: Int64[np.ndarray, " ops"]
    end_ns: Int64[np.ndarray, " ops"]
    transfer_output: Int64[np.ndarray, " transfers"]
    transfer_src: Int32[np.ndarray, " transfers"]
    transfer_dst: Int32[np.ndarray, " transfers"]
    transfer_start_ns: Int64[np.ndarray, " transfers"]
    transfer_end_ns: Int64[np.ndarray, " transfers"]  # leaves the channel; arrives a latency later, or after it has been received
    receive_start_ns: Int64[np.ndarray, " transfers"]  # of the receive channel; -1 where the link has none
    receive_end_ns: Int64[np.ndarray, " transfers"]


@dataclass(frozen=True, eq=False)
class StepResult:
    """One step, simulated or real. `infeasible` is the reason, or None; time and peaks are None only without a link or beyond a limit.

    `busy_ns` is of ops alone; `occupied_ns`, how long each channel carried something, is None where nobody could see it.
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
        """The step time where the placement is feasible, else None."""
        return self.step_time_ns if self.infeasible is None else None


@dataclass(frozen=True, eq=False)
class LeastTimes:
    """What holds for every step of a feasible placement: it takes `step_ns`; an op on a device starts `head_ns` after its beginning and
    ends `tail_ns` before its end. None of them may be less; `MAX_STEP_NS` where an op stands in no feasible placement.
    """

    step_ns: int
    head_ns: Int64[np.ndarray, "ops devices"]
    tail_ns: Int64[np.ndarray, "ops devices"]


@runtime_checkable
class Evaluator(Protocol):
    """Evaluates placements of one problem, all together (a simulator runs them in parallel), in their order.

    Who does not need the time of a step that is longer than `limit_ns` says so: it may come back as infeasible, without a time.
    """

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]: ...


@runtime_checkable
class Planner(Protocol):
    """Anything that places a problem: a baseline, a search, or a policy with a way to decode it."""

    def __call__(self, problem: Problem) -> Placement: ...


class Figures(NamedTuple):
    """Shares from 0 to 1 and nanoseconds; None what is not known: of a step that did not run, or that was measured and not seen into."""

    load_balance: float | None
    communication_share: float | None
    idle_ns: Int64[np.ndarray, " devices"] | None
    room: float | None


def figures(cluster: Cluster, result: StepResult, bound_ns: int) -> Figures:
    """The figures of a step on a cluster, with a lower bound of its problem."""
    load = result.busy_ns / cluster.streams
    balance = float(load[cluster.accelerators].mean() / load.max()) if load.any() else None
    room = None if result.feasible_ns is None else 1 - bound_ns / result.feasible_ns
    step, occupied = result.step_time_ns, result.occupied_ns
    if step is None or occupied is None:
        return Figures(balance, None, None, room)
    return Figures(balance, int(occupied.max(initial=0)) / step, _idle_ns(cluster, step, result.busy_ns, occupied), room)


def _idle_ns(
    cluster: Cluster, step_time_ns: int, busy_ns: Int64[np.ndarray, " devices"], occupied_ns: Int64[np.ndarray, " channels"]
) -> Int64[np.ndarray, " devices"]:
    """Of each device, a mean over its streams, rounded down."""
    copying = np.zeros_like(busy_ns)
    by_itself = cluster.device_channel != NO_CHANNEL
    copying[by_itself] = occupied_ns[cluster.device_channel[by_itself]]
    return (step_time_ns * cluster.streams - busy_ns - copying) // cluster.streams
