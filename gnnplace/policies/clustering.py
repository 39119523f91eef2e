"""Clusterings that a Grouper imitates: parts of the graph of units, numbered by when their work can start.

METIS cuts edges with cheap transfers and balances the work of the parts (Karypis and Kumar, 1998). It cuts in two
recursively, so some unions of groups, which is what a placement is, are good cuts as well. Numbers by time mean the
same on every graph, so a Grouper may learn from some graphs how to cluster others.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.problems import Problem
from gnnplace.schedules.paths import UnitStarts, unit_starts
from gnnplace.units.adjacency import adjacency, mean_transfer_ns
from gnnplace.units.partition import partition
from gnnplace.units.units import UnitEdges, Units, unit_edges, work_ns


def clustering(problem: Problem, units: Units, groups: int) -> Int64[np.ndarray, " units"]:
    """The group of each unit, one of `groups`; no placement is needed."""
    return groups_within(problem, units, np.zeros(units.num_units, np.int64), groups)


def within_passes(problem: Problem, units: Units, groups: int) -> Int64[np.ndarray, " units"]:
    """A clustering whose groups keep to one pass of training: the pass with most of a unit's work.

    A group of both passes would come before and after nearly all others.
    """
    phase = problem.graph.phase
    work = np.zeros((units.num_units, len(phase.values) + 1))  # the last column is of ops without a pass
    np.add.at(work, (units.unit, phase.index), problem.time_ns.min(axis=1))
    return groups_within(problem, units, work.argmax(axis=1), groups)


def groups_within(
    problem: Problem, units: Units, device: Int64[np.ndarray, " units"], groups: int
) -> Int64[np.ndarray, " units"]:
    """A clustering whose groups keep to one device; each device has groups in proportion to its work.

    If more devices are in use than there are groups, the devices with the least work share the last group.
    """
    starts = unit_starts(problem, units)
    served, part = _served(starts, device, groups), np.zeros(units.num_units, np.int64)
    for number, count in enumerate(_counts(starts, served, groups)):
        members = served == number
        part[members] = number * groups + _cut(problem, units, members, int(count))
    return by_time(starts, part, groups)


def by_time(starts: UnitStarts, part: Int64[np.ndarray, " units"], groups: int) -> Int64[np.ndarray, " units"]:
    """The parts, numbered by the mean start of their work.

    If there are fewer parts than groups, their numbers are spread evenly.
    """
    _, label = np.unique(part, return_inverse=True)
    work, start = (np.bincount(label, weights=values) for values in starts)
    rank = np.empty(len(work), np.int64)
    rank[np.argsort(start / work, kind="stable")] = np.arange(len(work))
    return (rank * groups // len(work))[label]


def _served(starts: UnitStarts, device: Int64[np.ndarray, " units"], groups: int) -> Int64[np.ndarray, " units"]:
    """The devices in use, numbered by falling work; the last number is shared if there are more devices than groups."""
    _, label = np.unique(device, return_inverse=True)
    work = np.bincount(label, weights=starts.work_ns)
    rank = np.empty(len(work), np.int64)
    rank[np.argsort(-work, kind="stable")] = np.arange(len(work))
    return np.minimum(rank, groups - 1)[label]


def _counts(starts: UnitStarts, device: Int64[np.ndarray, " units"], groups: int) -> Int64[np.ndarray, " devices"]:
    """The number of groups of each device: one, then one by one to the device with most work a group.

    A device has no more groups than units.
    """
    work, most = np.bincount(device, weights=starts.work_ns), np.bincount(device)
    counts = np.ones(len(work), np.int64)
    for _ in range(min(groups, len(device)) - len(work)):
        counts[np.where(counts < most, work / counts, -1.0).argmax()] += 1
    return counts


def _cut(
    problem: Problem, units: Units, members: Bool[np.ndarray, " units"], count: int
) -> Int64[np.ndarray, " members"]:
    """The part of each member, `0..count-1`; some parts may be empty."""
    number = members.cumsum() - 1
    edges = unit_edges(problem.graph, units)
    inside = members[edges.src] & members[edges.dst]
    src, dst = (number[ends[inside]].astype(np.int32) for ends in (edges.src, edges.dst))
    within = UnitEdges(src, dst, edges.bytes[inside])
    devices = problem.cluster.accelerators
    joined = adjacency(within, int(members.sum()), mean_transfer_ns(problem, devices, within.bytes))
    return partition(
        joined, work_ns(problem, units)[members][:, devices].mean(axis=1), np.full(count, 1 / count), recursive=True
    )
