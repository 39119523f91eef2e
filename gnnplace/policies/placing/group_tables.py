"""What a placer observes of groups of units: their order, and the tables of one grouping made from those of its units."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.policies.observations import UnitTables
from gnnplace.policies.unit_tables import peers, unit_tables
from gnnplace.problems import Problem
from gnnplace.schedules.unit_order import UnitStarts, unit_starts
from gnnplace.units.units import Units, UnitTransfers, group_edges, unit_transfers


class TablesOfUnits(NamedTuple):
    """The constants of one problem, from which the tables of every grouping are made."""

    units: UnitTables
    starts: UnitStarts
    transfers: UnitTransfers


def tables_of_units(problem: Problem, units: Units) -> TablesOfUnits:
    """The tables of the units by number."""
    tables = unit_tables(problem, units, np.arange(units.num_units))
    return TablesOfUnits(tables, unit_starts(problem, units), unit_transfers(problem.graph, units))


def group_order(starts: UnitStarts, group: Int64[np.ndarray, " units"], groups: int) -> tuple[Int64[np.ndarray, " groups"], int]:
    """Groups by the mean start of their work, then by number; empty ones come last. And how many are not empty."""
    work, start = (np.bincount(group, weights=values, minlength=groups) for values in starts)
    mean = np.divide(start, work, out=np.full(groups, np.inf), where=work > 0)
    return np.argsort(mean, kind="stable").astype(np.int64), int((work > 0).sum())


def group_tables(of: TablesOfUnits, group: Int64[np.ndarray, " units"], order: Int64[np.ndarray, " used"], groups: int) -> UnitTables:
    """Tables of the groups that have members; group `order[t]` is number t here."""
    units = of.units
    position = np.zeros(groups, np.int64)
    position[order] = np.arange(len(order))
    member = position[group]
    time_ns = np.zeros((len(order), units.time_ns.shape[1]))
    np.add.at(time_ns, member, units.time_ns)
    persistent, memory = (np.bincount(member, weights=values, minlength=len(order)) for values in (units.persistent, units.memory))
    return UnitTables(
        time_ns, persistent, memory, _blocks(of, member, len(order)), *peers(group_edges(of.transfers, member, len(order)), len(order)),
        units.ns_per_byte, units.latency_ns, units.capacity,
    )  # fmt: skip


def _blocks(of: TablesOfUnits, member: Int64[np.ndarray, " units"], count: int) -> Int64[np.ndarray, " used"]:
    """The block of units in which most of a group's work lies."""
    blocks = int(of.units.block.max()) + 1
    work: Float[np.ndarray, " cells"] = np.bincount(member * blocks + of.units.block, weights=of.starts.work_ns, minlength=count * blocks)
    return work.reshape(count, blocks).argmax(axis=1)
