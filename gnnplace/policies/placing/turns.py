"""The turns of a Placer: the order of each grouping's groups, their allowed devices, and their placement."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from gnnplace.policies.encoders.groups import sum_by_group
from gnnplace.policies.placing.group_tables import PlacedGroups, TablesOfUnits
from gnnplace.policies.placing.placer import Encoded, Placer
from gnnplace.policies.protocol import Choose


class Turns(NamedTuple):
    """The turns: `order[i, t]` is the group of grouping i with turn t, `allowed[i, t]` its allowed devices.

    `placed` observes the devices meanwhile.
    """

    order: Int[Tensor, "leading groups"]
    allowed: Bool[Tensor, "leading groups devices"]
    placed: PlacedGroups | None


def turns(
    tables: TablesOfUnits | None,
    grouping: Int[Tensor, "leading units"],
    legal: Bool[Tensor, "units devices"],
    groups: int,
    samples: int,
) -> Turns:
    """The turns of groups: by label without tables, as in the paper; with tables by when the groups' work can start.

    Empty groups come last then, and have no choice. With a base, devices on which a group would make its step far
    longer are not allowed, if another one is.
    """
    may = group_allowed(grouping, legal, groups)
    if tables is None:
        return Turns(torch.arange(groups, device=grouping.device).expand(len(grouping), -1), may, None)
    placed = PlacedGroups(tables, grouping, groups, samples)
    open_ = in_turn(may, placed.order)
    if placed.useless is not None:
        useful = open_ & ~placed.useless
        open_ = torch.where(useful.any(-1, keepdim=True), useful, open_)
    return Turns(placed.order, choiceless(open_, placed.used), placed)


def choiceless(
    may: Bool[Tensor, "leading groups devices"], used: Bool[Tensor, "leading groups"]
) -> Bool[Tensor, "leading groups devices"]:
    """The allowed devices; an empty group has no choice but the first device."""
    first = torch.zeros_like(may)
    first[..., 0] = True
    return torch.where(used.unsqueeze(-1), may, first)


def place(
    placer: Placer, encoded: Encoded, queue: Turns, samples: int, choose: Choose
) -> Int[Tensor, "samples groups"]:
    """The device chosen at each turn; recorded devices (replay) are scored in one pass."""
    legal = queue.allowed.repeat_interleave(samples // len(queue.allowed), 0)
    recorded = choose.given("device")
    if recorded is None:
        return placer.write(
            encoded, samples, lambda turn, logits: choose("device", logits, legal[:, turn]), queue.placed
        )
    logits = placer.score(encoded, recorded.view(samples, -1), queue.placed)
    shape = recorded.shape  # [samples] where there is one group, else [samples, groups]
    return choose("device", logits.view(*shape, -1), legal.view(*shape, -1)).view(samples, -1)


def in_turn(
    of_group: Shaped[Tensor, "leading groups feature"], order: Int[Tensor, "leading groups"]
) -> Shaped[Tensor, "leading groups feature"]:
    """The rows of groups, in the order of their turns."""
    return of_group.gather(1, order.unsqueeze(-1).expand_as(of_group))


def by_label(
    of_turn: Int[Tensor, "samples groups"], order: Int[Tensor, "leading groups"]
) -> Int[Tensor, "samples groups"]:
    """The choices of turns, by the labels of groups."""
    return torch.empty_like(of_turn).scatter_(1, order.repeat_interleave(len(of_turn) // len(order), 0), of_turn)


def group_allowed(
    grouping: Int[Tensor, "leading units"], legal: Bool[Tensor, "units devices"], groups: int
) -> Bool[Tensor, "leading groups devices"]:
    """The devices that are allowed for all members of a group; if there is none, those allowed for any of them."""
    forbidden = sum_by_group(grouping, (~legal).float(), groups) > 0
    everyone, anyone = ~forbidden, sum_by_group(grouping, legal.float(), groups) > 0
    return torch.where(everyone.any(-1, keepdim=True), everyone, anyone)


def soft_placement(
    device: Int[Tensor, "samples units"], legal: Bool[Tensor, "units devices"]
) -> Int[Tensor, "samples units"]:
    """The devices of units; a unit that may not stand on its group's device stands on its first allowed one."""
    may = legal[torch.arange(len(legal), device=legal.device), device]
    return torch.where(may, device, legal.int().argmax(dim=1))
