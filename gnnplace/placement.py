"""A placement: the device of every op, the schedule that orders ops within devices, and which ops run fused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.choices import PRIORITIZED as PRIORITIZED
from gnnplace.choices import RULES as RULES
from gnnplace.choices import SCHEDULES as SCHEDULES
from gnnplace.choices import Schedule as Schedule
from gnnplace.cluster import NO_LINK
from gnnplace.fusion.rules import leaders, refusal
from gnnplace.graph import NONE
from gnnplace.problems import Problem


@dataclass(frozen=True, eq=False)
class Placement:
    """`device[i]` is the device of op i. `priority` (highest first) exists only under `given` and `in-order`.

    Ops with the same label in `fusion` run as one op; labels are below the number of ops. None fuses nothing. Raises
    ValueError for an unknown schedule, missing or superfluous priorities, and bad labels.
    """

    device: Int32[np.ndarray, " ops"]
    schedule: Schedule = "critical-path"
    priority: Int64[np.ndarray, " ops"] | None = None
    fusion: Int32[np.ndarray, " ops"] | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is none of {', '.join(SCHEDULES)}")
        if (self.schedule in PRIORITIZED) != (self.priority is not None):
            raise ValueError(
                f"priority: the schedule {self.schedule!r} {'needs' if self.priority is None else 'takes no'} "
                "priorities"
            )
        self.device.setflags(write=False)
        if self.fusion is not None:
            _require_labels(self.fusion, len(self.device))
            self.fusion.setflags(write=False)


def scheduled(placement: Placement, schedule: Schedule) -> Placement:
    """The placement under another schedule; priorities are kept only for `given` and `in-order`."""
    priority = placement.priority if schedule in PRIORITIZED else None
    return Placement(placement.device, schedule, priority, placement.fusion)


def rule_of(schedule: Schedule) -> Schedule:
    """The schedule that planners without priorities plan for: `critical-path` in place of `given` and `in-order`."""
    return "critical-path" if schedule in PRIORITIZED else schedule


def check(problem: Problem, placement: Placement) -> str | None:
    """The reason why a placement has no step: a bad fusion or device, a split colocation group, a missing link.

    Returns None if there is no such reason; memory is not checked. Raises ValueError if the placement has another
    number of ops or devices than the problem.
    """
    device = placement.device
    if device.shape != (problem.num_ops,) or device.min() < 0 or device.max() >= problem.num_devices:
        size = f"{problem.num_ops} ops on {problem.num_devices} devices"
        raise ValueError(f"device: {device.shape[0]} entries between {device.min()} and {device.max()} for {size}")
    bad_fusion = None
    if placement.fusion is not None:
        bad_fusion = refusal(problem.graph, leaders(placement.fusion)) or torn(problem, placement)
    return bad_fusion or _forbidden(problem, device) or _split(problem, device) or missing_link(problem, device)


def torn(problem: Problem, placement: Placement) -> str | None:
    """A message about the first op that is fused with an op on another device, or None."""
    if placement.fusion is None:
        return None
    device, leader = placement.device, leaders(placement.fusion)
    bad = device != device[leader]
    if not bad.any():
        return None
    op = int(np.argmax(bad))
    first, names = int(leader[op]), problem.graph.op_names
    devices = [problem.cluster.device_names[device[each]] for each in (first, op)]
    return f"fusion: {names[first]!r} and {names[op]!r} are fused, but stand on {devices[0]} and {devices[1]}"


def _require_labels(fusion: Int32[np.ndarray, " ops"], ops: int) -> None:
    if fusion.shape != (ops,) or fusion.min() < 0 or fusion.max() >= ops:
        raise ValueError(
            f"fusion: {len(fusion)} labels between {fusion.min()} and {fusion.max()} for {ops} ops; labels are below "
            f"{ops}"
        )


def _forbidden(problem: Problem, device: Int32[np.ndarray, " ops"]) -> str | None:
    bad = ~problem.allowed[np.arange(problem.num_ops), device]
    if not bad.any():
        return None
    op = int(np.argmax(bad))
    return f"op {problem.graph.op_names[op]!r} is not allowed on {problem.cluster.device_names[device[op]]}"


def _split(problem: Problem, device: Int32[np.ndarray, " ops"]) -> str | None:
    group = problem.graph.colocation
    members = np.flatnonzero(group.index != NONE)
    first = np.full(len(group.values), -1, dtype=np.int64)
    first[group.index[members][::-1]] = members[::-1]
    bad = device[members] != device[first[group.index[members]]]
    if not bad.any():
        return None
    op = int(members[np.argmax(bad)])
    leader, names = int(first[group.index[op]]), problem.graph.op_names
    return f"colocation group {group[op]!r} is split: {names[leader]!r} and {names[op]!r} are on different devices"


def missing_link(problem: Problem, device: Int32[np.ndarray, " ops"]) -> str | None:
    """A message about the first edge (data or control) between devices without a link, or None."""
    graph = problem.graph
    src, dst = device[graph.edge_src], device[graph.edge_dst]
    bad = (src != dst) & (problem.cluster.link_index[src, dst] == NO_LINK)
    if not bad.any():
        return None
    edge = int(np.argmax(bad))
    ops = [graph.op_names[int(ends[edge])] for ends in (graph.edge_src, graph.edge_dst)]
    devices = [problem.cluster.device_names[int(ends[edge])] for ends in (src, dst)]
    return f"edge {ops[0]!r} -> {ops[1]!r} needs a link from {devices[0]} to {devices[1]}, which does not exist"
