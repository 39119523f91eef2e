"""What a step says of its placement beyond its time, each figure defined here alone: how even, how much in transit, how idle, how far
from the bound.

- *Load* of a device: its busy time by its streams. *Load balance*: the mean load of the accelerators over the largest load of all devices,
  at most 1; the mean over the largest is what Rosas, Giménez and Labarta (2014) and POP's efficiency metrics call so. A CPU beside
  accelerators that is left alone says nothing against a placement, so it counts only where it is the one that holds up the others.
- *Communication share*: the part of the step for which the busiest channel is occupied; at 1, a link (both ways of a shared bus) is full.
- *Idle time* of a device: what is left of the step beside its load, and beside the transfers of a device that copies by itself.
- *Room*: `1 - bound / step time`, the most that any placement could still gain; of feasible steps alone, as bounds are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import NO_CHANNEL, Cluster
from gnnplace.result import StepResult


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
