"""What a placer observes of groups of units: their order, and the
tables of one grouping made from those of its units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from gnnplace.policies.placing.observations import OBSERVATIONS, PartialPlacements, UnitTables
from gnnplace.policies.placing.unit_tables import peers, unit_tables
from gnnplace.problems import Problem
from gnnplace.schedules.paths import UnitStarts, unit_starts
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


def group_order(
    starts: UnitStarts, group: Int64[np.ndarray, " units"], groups: int
) -> tuple[Int64[np.ndarray, " groups"], int]:
    """Groups by the mean start of their work, then by number; empty ones come last. And how many are not empty."""
    work, start = (np.bincount(group, weights=values, minlength=groups) for values in starts)
    mean = np.divide(start, work, out=np.full(groups, np.inf), where=work > 0)
    return np.argsort(mean, kind="stable").astype(np.int64), int((work > 0).sum())


def group_tables(
    of: TablesOfUnits, group: Int64[np.ndarray, " units"], order: Int64[np.ndarray, " used"], groups: int
) -> UnitTables:
    """Tables of the groups that have members; group `order[t]` is number t here."""
    units = of.units
    position = np.zeros(groups, np.int64)
    position[order] = np.arange(len(order))
    member = position[group]
    time_ns = np.zeros((len(order), units.time_ns.shape[1]))
    np.add.at(time_ns, member, units.time_ns)
    persistent, memory = (
        np.bincount(member, weights=values, minlength=len(order)) for values in (units.persistent, units.memory)
    )
    return UnitTables(
        time_ns, persistent, memory, _blocks(of, member, len(order)), *peers(group_edges(of.transfers, member,
        len(order)), len(order)),
        units.ns_per_byte, units.latency_ns, units.capacity,
    )  # fmt: skip


def _blocks(of: TablesOfUnits, member: Int64[np.ndarray, " units"], count: int) -> Int64[np.ndarray, " used"]:
    """The block of units in which most of a group's work lies."""
    blocks = int(of.units.block.max()) + 1
    work: Float[np.ndarray, " cells"] = np.bincount(
        member * blocks + of.units.block, weights=of.starts.work_ns, minlength=count * blocks
    )
    return work.reshape(count, blocks).argmax(axis=1)


class PlacedGroups:
    """Placements of groups that grow together, `samples / groupings` of each grouping, as a Placer observes them.

    Observations are those of the devices before each group; those before an empty group are zeros, and where it is
    placed doesn't matter.

    `order` (`Int[groupings groups]`) is the order in which each grouping's groups are placed, empty ones last; `used`
    (`Bool[groupings groups]`) is True for the steps that place a group with members.
    """

    def __init__(self, of: TablesOfUnits, grouping: Int[Tensor, "leading units"], groups: int, samples: int) -> None:
        self._device, self._groups, self._devices = grouping.device, groups, of.units.time_ns.shape[1]
        rows = grouping.cpu().numpy()
        orders = [group_order(of.starts, row, groups) for row in rows]
        self.order = torch.from_numpy(np.stack([order for order, _ in orders])).to(self._device)
        counts = torch.tensor([count for _, count in orders], device=self._device)
        self.used = torch.arange(groups, device=self._device) < counts.unsqueeze(1)
        each = samples // len(rows)
        self._partial = [
            PartialPlacements(group_tables(of, row, order[:count], groups), each)
            for row, (order, count) in zip(rows, orders, strict=True)
        ]

    def observe(self) -> Float[Tensor, "samples devices observations"]:
        """What is known of each device for the next group."""
        return self._tensor([p.observe() if p.placed < p.device.shape[1] else self._nothing(p) for p in self._partial])

    def place(self, device: Int[Tensor, " samples"]) -> None:
        """Put the next group on a device in each sample; `observe` comes first."""
        for partial, chosen in zip(self._partial, np.split(device.cpu().numpy(), len(self._partial)), strict=True):
            if partial.placed < partial.device.shape[1]:
                partial.place(chosen)

    def replay(self, device: Int[Tensor, "samples groups"]) -> Float[Tensor, "samples groups devices observations"]:
        """Every observation on the way to known placements."""
        chosen = np.split(device.cpu().numpy(), len(self._partial))
        return self._tensor(
            [self._replayed(partial, rows) for partial, rows in zip(self._partial, chosen, strict=True)]
        )

    def _replayed(self, partial: PartialPlacements, device: Int64[np.ndarray, "each groups"]) -> np.ndarray:
        used = partial.device.shape[1]
        seen = partial.replay(np.ascontiguousarray(device[:, :used]))
        return np.pad(seen, ((0, 0), (0, self._groups - used), (0, 0), (0, 0)))

    def _nothing(self, partial: PartialPlacements) -> np.ndarray:
        return np.zeros((len(partial.device), self._devices, len(OBSERVATIONS)), np.float32)

    def _tensor(self, rows: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(rows)).to(self._device)
