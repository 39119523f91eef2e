"""The constants of groups of units that a placer observes, made from those of their units, and the groups' order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from gnnplace.policies.placing.base import Base, useless
from gnnplace.policies.placing.observations import OBSERVATIONS, PartialPlacements, UnitTables
from gnnplace.policies.placing.unit_tables import peers, unit_tables
from gnnplace.problems import Problem
from gnnplace.schedules.paths import UnitStarts, unit_starts
from gnnplace.units.units import Units, UnitTransfers, group_edges, unit_transfers


class TablesOfUnits(NamedTuple):
    """The constants of one problem's units; the tables of every grouping are made from them.

    `base` is the schedule that is observed beside them, None where there is none.
    """

    units: UnitTables
    starts: UnitStarts
    transfers: UnitTransfers
    base: Base | None = None


def tables_of_units(problem: Problem, units: Units, base: Base | None = None) -> TablesOfUnits:
    """The tables of the units by number."""
    tables = unit_tables(problem, units, np.arange(units.num_units))
    return TablesOfUnits(tables, unit_starts(problem, units), unit_transfers(problem.graph, units), base)


def group_order(
    starts: UnitStarts, group: Int64[np.ndarray, " units"], groups: int
) -> tuple[Int64[np.ndarray, " groups"], int]:
    """The groups by the mean start of their work, then by number, empty ones last; and how many are not empty."""
    work, start = (np.bincount(group, weights=values, minlength=groups) for values in starts)
    mean = np.divide(start, work, out=np.full(groups, np.inf), where=work > 0)
    return np.argsort(mean, kind="stable").astype(np.int64), int((work > 0).sum())


def group_tables(
    constants: TablesOfUnits, group: Int64[np.ndarray, " units"], order: Int64[np.ndarray, " used"], groups: int
) -> UnitTables:
    """The tables of the groups with members; group `order[t]` is number t in them."""
    units = constants.units
    position = np.zeros(groups, np.int64)
    position[order] = np.arange(len(order))
    member = position[group]
    time_ns = np.zeros((len(order), units.time_ns.shape[1]))
    np.add.at(time_ns, member, units.time_ns)
    persistent, memory = (
        np.bincount(member, weights=values, minlength=len(order)) for values in (units.persistent, units.memory)
    )
    block = _blocks(constants, member, len(order))
    neighbours = peers(group_edges(constants.transfers, member, len(order)), len(order))
    return UnitTables(
        time_ns, persistent, memory, block, *neighbours, units.ns_per_byte, units.latency_ns, units.capacity
    )


def _blocks(constants: TablesOfUnits, member: Int64[np.ndarray, " units"], count: int) -> Int64[np.ndarray, " used"]:
    """The block with most of each group's work."""
    blocks = int(constants.units.block.max()) + 1
    work: Float[np.ndarray, " cells"] = np.bincount(
        member * blocks + constants.units.block, weights=constants.starts.work_ns, minlength=count * blocks
    )
    return work.reshape(count, blocks).argmax(axis=1)


class PlacedGroups:
    """Placements of groups that grow together, `samples / groupings` for each grouping, as a Placer observes them.

    Observations are those of the devices before each group; they are zeros before an empty group, whose device doesn't
    matter.

    `useless` (`Bool[groupings groups devices]`, None without a base) is True where a group would make the step of the
    base far longer (`base.useless`).

    `order` (`Int[groupings groups]`) is the order in which each grouping's groups are placed, empty ones last; `used`
    (`Bool[groupings groups]`) is True for the steps that place a group with members.
    """

    def __init__(
        self, constants: TablesOfUnits, grouping: Int[Tensor, "leading units"], groups: int, samples: int
    ) -> None:
        self._device, self._groups, self._devices = grouping.device, groups, constants.units.time_ns.shape[1]
        rows, self._placed = grouping.cpu().numpy(), 0
        orders = [group_order(constants.starts, row, groups) for row in rows]
        self.order = torch.from_numpy(np.stack([order for order, _ in orders])).to(self._device)
        counts = torch.tensor([count for _, count in orders], device=self._device)
        self.used = torch.arange(groups, device=self._device) < counts.unsqueeze(1)
        samples_each = samples // len(rows)
        self._partial = [
            PartialPlacements(group_tables(constants, row, order[:count], groups), samples_each)
            for row, (order, count) in zip(rows, orders, strict=True)
        ]
        self._base: Tensor | None = None
        self.useless: Tensor | None = None
        if constants.base is not None:
            seen = np.stack(
                [constants.base.rows(row, groups)[order] for row, (order, _) in zip(rows, orders, strict=True)]
            )
            self._base = torch.from_numpy(seen.repeat(samples_each, axis=0)).to(self._device)
            self.useless = torch.from_numpy(useless(seen)).to(self._device)

    def observe(self) -> Float[Tensor, "samples devices observations"]:
        """The observations of each device for the next group."""
        seen = self._tensor([p.observe() if p.placed < p.device.shape[1] else self._nothing(p) for p in self._partial])
        return seen if self._base is None else torch.cat([seen, self._base[:, self._placed]], dim=-1)

    def place(self, device: Int[Tensor, " samples"]) -> None:
        """Puts the next group on a device in each sample; `observe` comes first."""
        for partial, chosen in zip(self._partial, np.split(device.cpu().numpy(), len(self._partial)), strict=True):
            if partial.placed < partial.device.shape[1]:
                partial.place(chosen)
        self._placed += 1

    def replay(self, device: Int[Tensor, "samples groups"]) -> Float[Tensor, "samples groups devices observations"]:
        """All observations on the way to given placements."""
        chosen = np.split(device.cpu().numpy(), len(self._partial))
        seen = self._tensor(
            [self._replayed(partial, rows) for partial, rows in zip(self._partial, chosen, strict=True)]
        )
        return seen if self._base is None else torch.cat([seen, self._base], dim=-1)

    def _replayed(self, partial: PartialPlacements, device: Int64[np.ndarray, "each groups"]) -> np.ndarray:
        used = partial.device.shape[1]
        seen = partial.replay(np.ascontiguousarray(device[:, :used]))
        return np.pad(seen, ((0, 0), (0, self._groups - used), (0, 0), (0, 0)))

    def _nothing(self, partial: PartialPlacements) -> np.ndarray:
        return np.zeros((len(partial.device), self._devices, len(OBSERVATIONS)), np.float32)

    def _tensor(self, rows: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(rows)).to(self._device)
