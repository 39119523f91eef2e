"""Group embeddings from the embeddings of their members, and the adjacency of groups.

`MeanGroups` brings costs to the Placer without message passing: the mean of the members, the size of the group, and the
binary adjacency of groups (direction and diagonal as in `group_adjacency`). It has no parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.problems import Problem
from gnnplace.units.units import Units, unit_edges


def edges_between(problem: Problem, units: Units) -> Int[Tensor, "2 edges"]:
    """The pairs (source, destination) of different units with an edge; control edges count, as in the authors' code."""
    edges = unit_edges(problem.graph, units)
    return torch.from_numpy(np.stack([edges.src, edges.dst]).astype(np.int64))


def group_adjacency(
    grouping: Int[Tensor, "leading units"], edges: Int[Tensor, "2 edges"], groups: int
) -> Float[Tensor, "leading groups groups"]:
    """1 in row g and column h where a unit of g feeds one of h, else 0.

    The paper: entry h of group g is 1 if the group has an edge to group h. So rows are sources, and the diagonal is 1
    where an edge stays inside a group, as in the authors' code.
    """
    src, dst = (grouping[:, ends] for ends in edges)
    adjacency = torch.zeros(len(grouping), groups * groups, device=grouping.device)
    return adjacency.scatter_(1, src * groups + dst, 1.0).view(-1, groups, groups)


def sum_by_group(
    grouping: Int[Tensor, "leading units"], values: Float[Tensor, "units feature"], groups: int
) -> Float[Tensor, "leading groups feature"]:
    """The sum of the members' values in every group; zeros for an empty one."""
    index = (grouping + groups * torch.arange(len(grouping), device=grouping.device).unsqueeze(1)).flatten()
    sums = values.new_zeros(len(grouping) * groups, values.shape[1])
    return sums.index_add(0, index, values.repeat(len(grouping), 1)).view(len(grouping), groups, -1)


class MeanGroupConstants(NamedTuple):
    edges: Int[Tensor, "2 edges"]


class MeanGroups(nn.Module):
    """Mean of members' embeddings, size (relative to units / groups, log1p), adjacency. An empty group is all zeros."""

    def __init__(self, members_width: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.width = members_width + 1 + groups

    def constants(self, problem: Problem, units: Units) -> MeanGroupConstants:
        return MeanGroupConstants(edges_between(problem, units))

    def widen_ranges(self, constants: Sequence[MeanGroupConstants]) -> None:
        """Nothing: the op encoder clamps the members' columns."""

    def forward(
        self,
        constants: MeanGroupConstants,
        grouping: Int[Tensor, "leading units"],
        members: Float[Tensor, "units members_width"] | None,
    ) -> Float[Tensor, "leading groups width"]:
        assert members is not None
        size = sum_by_group(grouping, members.new_ones(len(members), 1), self.groups)
        mean = sum_by_group(grouping, members, self.groups) / size.clamp(min=1)
        adjacency = group_adjacency(grouping, constants.edges, self.groups)
        return torch.cat([mean, torch.log1p(size * self.groups / len(members)), adjacency], dim=-1)
