"""The order in which a Placer places the groups of each grouping, where
each may stand, and their placing, turn by turn.
"""

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
    """`order[i, t]` is the group of grouping i whose turn is t, `allowed[i, t]`
    where it may stand; `placed` observes devices meanwhile.
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
    """By label, as in the paper, without tables.

    With them by when the groups' work can start; empty ones come last and have no choice.
    """
    may = group_allowed(grouping, legal, groups)
    if tables is None:
        return Turns(torch.arange(groups, device=grouping.device).expand(len(grouping), -1), may, None)
    placed = PlacedGroups(tables, grouping, groups, samples)
    return Turns(placed.order, choiceless(in_turn(may, placed.order), placed.used), placed)


def choiceless(
    may: Bool[Tensor, "leading groups devices"], used: Bool[Tensor, "leading groups"]
) -> Bool[Tensor, "leading groups devices"]:
    """Where groups may stand; an empty one has no choice but the first device."""
    first = torch.zeros_like(may)
    first[..., 0] = True
    return torch.where(used.unsqueeze(-1), may, first)


def place(
    placer: Placer, encoded: Encoded, queue: Turns, samples: int, choose: Choose
) -> Int[Tensor, "samples groups"]:
    """The device chosen at each turn; where devices are given (replay), all of them in one fused pass."""
    legal = queue.allowed.repeat_interleave(samples // len(queue.allowed), 0)
    given = choose.given("device")
    if given is None:
        return placer.write(
            encoded, samples, lambda turn, logits: choose("device", logits, legal[:, turn]), queue.placed
        )
    logits = placer.score(encoded, given.view(samples, -1), queue.placed)
    shape = given.shape  # [samples] where there is one group, else [samples, groups]
    return choose("device", logits.view(*shape, -1), legal.view(*shape, -1)).view(samples, -1)


def in_turn(
    of_group: Shaped[Tensor, "leading groups feature"], order: Int[Tensor, "leading groups"]
) -> Shaped[Tensor, "leading groups feature"]:
    """The rows of groups, in the order of their turns."""
    return of_group.gather(1, order.unsqueeze(-1).expand_as(of_group))


def by_label(
    of_turn: Int[Tensor, "samples groups"], order: Int[Tensor, "leading groups"]
) -> Int[Tensor, "samples groups"]:
    """What was chosen turn by turn, group by group."""
    return torch.empty_like(of_turn).scatter_(1, order.repeat_interleave(len(of_turn) // len(order), 0), of_turn)


def group_allowed(
    grouping: Int[Tensor, "leading units"], legal: Bool[Tensor, "units devices"], groups: int
) -> Bool[Tensor, "leading groups devices"]:
    """Where all members of a group may stand; where they have no device in common, where any of them may."""
    forbidden = sum_by_group(grouping, (~legal).float(), groups) > 0
    everyone, anyone = ~forbidden, sum_by_group(grouping, legal.float(), groups) > 0
    return torch.where(everyone.any(-1, keepdim=True), everyone, anyone)


def soft_placement(
    device: Int[Tensor, "samples units"], legal: Bool[Tensor, "units devices"]
) -> Int[Tensor, "samples units"]:
    """Units that may not stand on their group's device stand on the first device that is allowed for them."""
    may = legal[torch.arange(len(legal), device=legal.device), device]
    return torch.where(may, device, legal.int().argmax(dim=1))
