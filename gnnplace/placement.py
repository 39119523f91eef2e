"""A placement: the device of every op, the schedule that orders ops within devices, and which ops run fused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.choices import RULES as RULES
from gnnplace.choices import SCHEDULES as SCHEDULES
from gnnplace.choices import Schedule as Schedule
from gnnplace.cluster import NO_LINK
from gnnplace.fusion.rules import leaders, refusal
from gnnplace.graph import NONE
from gnnplace.problems import Problem


@dataclass(frozen=True, eq=False)
class Placement:
    """`device[i]` is the device of op i. `priority` (the highest goes first) exists only under the schedule `given`.
    Raises ValueError.

    Ops with the same label in `fusion`, from 0 to the number of ops, run as one; None: each runs by itself.
    """

    device: Int32[np.ndarray, " ops"]
    schedule: Schedule = "critical-path"
    priority: Int64[np.ndarray, " ops"] | None = None
    fusion: Int32[np.ndarray, " ops"] | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule: {self.schedule!r} is none of {', '.join(SCHEDULES)}")
        if (self.schedule == "given") != (self.priority is not None):
            raise ValueError(
                f"priority: the schedule {self.schedule!r} {'needs' if self.priority is None else 'takes no'} "
                "priorities"
            )
        self.device.setflags(write=False)
        if self.fusion is not None:
            _require_labels(self.fusion, len(self.device))
            self.fusion.setflags(write=False)


def scheduled(placement: Placement, schedule: Schedule) -> Placement:
    """The same devices and fusion under a schedule; its priorities stay for `given` alone."""
    return Placement(placement.device, schedule, placement.priority if schedule == "given" else None, placement.fusion)


def rule_of(schedule: Schedule) -> Schedule:
    """The schedule that planners without priorities plan for: the critical path's where priorities are asked for."""
    return "critical-path" if schedule == "given" else schedule


def check(problem: Problem, placement: Placement) -> str | None:
    """The reason why a placement is infeasible, memory aside: a bad fusion or device, a split colocation group or a
    missing link.

    Returns None if there is no such reason. Raises ValueError where the placement does not fit the problem's ops and
    devices.
    """
    device = placement.device
    if device.shape != (problem.num_ops,) or device.min() < 0 or device.max() >= problem.num_devices:
        size = f"{problem.num_ops} ops on {problem.num_devices} devices"
        raise ValueError(f"device: {device.shape[0]} entries between {device.min()} and {device.max()} for {size}")
    unfused = (
        None
        if placement.fusion is None
        else refusal(problem.graph, leaders(placement.fusion)) or torn(problem, placement)
    )
    return unfused or _forbidden(problem, device) or _split(problem, device) or missing_link(problem, device)


def torn(problem: Problem, placement: Placement) -> str | None:
    """A message about the first op that stands elsewhere than an op that it is fused with, or None."""
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
    """A message about the first edge (data or control) that needs a link that does not exist, or None."""
    graph = problem.graph
    src, dst = device[graph.edge_src], device[graph.edge_dst]
    bad = (src != dst) & (problem.cluster.link_index[src, dst] == NO_LINK)
    if not bad.any():
        return None
    edge = int(np.argmax(bad))
    ops = [graph.op_names[int(ends[edge])] for ends in (graph.edge_src, graph.edge_dst)]
    devices = [problem.cluster.device_names[int(ends[edge])] for ends in (src, dst)]
    return f"edge {ops[0]!r} -> {ops[1]!r} needs a link from {devices[0]} to {devices[1]}, which does not exist"
