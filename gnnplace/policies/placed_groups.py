"""Placements of groups that grow together, `samples / groupings` of each grouping, as a Placer observes them."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from gnnplace.policies.group_tables import TablesOfUnits, group_order, group_tables
from gnnplace.policies.observations import OBSERVATIONS, PartialPlacements


class PlacedGroups:
    """Observations of the devices before each group; those before an empty group are zeros, and where it is placed doesn't matter.

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
            PartialPlacements(group_tables(of, row, order[:count], groups), each) for row, (order, count) in zip(rows, orders, strict=True)
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
        return self._tensor([self._replayed(partial, rows) for partial, rows in zip(self._partial, chosen, strict=True)])

    def _replayed(self, partial: PartialPlacements, device: Int64[np.ndarray, "each groups"]) -> np.ndarray:
        used = partial.device.shape[1]
        seen = partial.replay(np.ascontiguousarray(device[:, :used]))
        return np.pad(seen, ((0, 0), (0, self._groups - used), (0, 0), (0, 0)))

    def _nothing(self, partial: PartialPlacements) -> np.ndarray:
        return np.zeros((len(partial.device), self._devices, len(OBSERVATIONS)), np.float32)

    def _tensor(self, rows: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(rows)).to(self._device)
