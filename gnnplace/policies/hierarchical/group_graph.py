"""Message passing over the graph of groups, instead of the paper's adjacency column for each group.

No weight depends on the number of groups. A node is a group with members. Its features are the mean of the members'
embeddings, and their amounts (`columns.py`) over the root mean square of all such groups. An edge joins two groups and
carries each output once for each group that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from gnnplace.policies.encoders.columns import Columns, apart
from gnnplace.policies.encoders.gnn import Aggregate, GNNEncoder
from gnnplace.policies.encoders.groups import sum_by_group
from gnnplace.policies.encoders.kinds import SeenColumns
from gnnplace.policies.features import EDGE_FEATURES, EdgeScale, edge_features, edge_scale
from gnnplace.problems import Problem
from gnnplace.units.units import Units, UnitTransfers, group_edges, unit_transfers


class GroupGraphConstants(NamedTuple):
    """The amounts of each unit, and the transfers between units."""

    sums: Float[Tensor, "units sums"]
    transfers: UnitTransfers
    scale: EdgeScale


class GroupGraph(nn.Module):
    """Embeddings of `width` for each group, after `rounds` rounds of message passing; zeros for an empty one.

    With `kept_apart` the mean embedding of a grouping is subtracted (`columns.apart`): then what all groups of a graph
    have in common, such as what its transfers cost, does not reach a Placer.
    """

    def __init__(
        self,
        columns: Columns,
        members_width: int,
        groups: int,
        *,
        width: int = 64,
        rounds: int = 3,
        aggregate: Aggregate = "mean",
        kept_apart: bool = True,
    ) -> None:
        super().__init__()
        self.columns, self.groups, self.width, self.kept_apart = columns, groups, width, kept_apart
        self.seen = SeenColumns(columns.sums_width)
        features = members_width + columns.sums_width
        self.encoder = GNNEncoder(features, EDGE_FEATURES, width=width, rounds=rounds, aggregate=aggregate)

    def constants(self, problem: Problem, units: Units) -> GroupGraphConstants:
        return GroupGraphConstants(
            self.columns.sums(problem, units), unit_transfers(problem.graph, units), edge_scale(problem)
        )

    def widen_ranges(self, constants: Sequence[GroupGraphConstants]) -> None:
        """Keeps the columns that occur in training; the encoder's ranges stay open, since embeddings have no range."""
        for graph in constants:
            self.seen.widen(graph.sums)

    def forward(
        self,
        constants: GroupGraphConstants,
        grouping: Int[Tensor, "leading units"],
        members: Float[Tensor, "units members_width"] | None,
    ) -> Float[Tensor, "leading groups width"]:
        assert members is not None
        size = sum_by_group(grouping, members.new_ones(len(members), 1), self.groups)
        used = size.squeeze(-1) > 0
        sums = sum_by_group(grouping, self.seen(constants.sums), self.groups)
        node = torch.cat(
            [sum_by_group(grouping, members, self.groups) / size.clamp(min=1), _relative(sums, used)], dim=-1
        )
        edges, edge = self._edges(constants, grouping, used)
        of_grouping = used.nonzero()[:, 0]
        embedded = self.encoder(node[used], edges, edge, of_grouping)
        embedded = apart(embedded, of_grouping) if self.kept_apart else embedded
        return node.new_zeros(*used.shape, self.width).masked_scatter(used.unsqueeze(-1), embedded)

    def _edges(
        self,
        constants: GroupGraphConstants,
        grouping: Int[Tensor, "leading units"],
        used: Bool[Tensor, "leading groups"],
    ) -> tuple[Int64[Tensor, "2 edges"], Float[Tensor, "edges edge_features"]]:
        """The edges of all groupings; groups are numbered over all of them, empty ones left out."""
        number = used.flatten().cumsum(0).view_as(used).cpu().numpy() - 1
        ends, features = [], []
        for row, nodes in zip(grouping.cpu().numpy(), number, strict=True):
            edges = group_edges(constants.transfers, row, self.groups)
            ends.append(nodes[np.stack([edges.src, edges.dst])])
            features.append(edge_features(constants.scale, len(np.unique(row)), edges.bytes))
        device = grouping.device
        return torch.from_numpy(np.concatenate(ends, axis=1)).to(device), torch.from_numpy(np.concatenate(features)).to(
            device
        )


def _relative(
    sums: Float[Tensor, "leading groups sums"], used: Bool[Tensor, "leading groups"]
) -> Float[Tensor, "leading groups sums"]:
    """Divided by the root mean square over groups with members."""
    scale = (sums.square().sum(dim=1, keepdim=True) / used.sum(dim=1)[:, None, None]).sqrt()
    return sums / torch.where(scale > 0, scale, 1)
