"""Costs without message passing: what units cost, and their neighbours
as the paper writes them, by breadth-first indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.policies.encoders.columns import CostColumns
from gnnplace.policies.encoders.gnn import TrainedRange, apart
from gnnplace.policies.encoders.paper import NEIGHBOURS, neighbours, standardised
from gnnplace.problems import Problem
from gnnplace.units.units import Units


class CostOpConstants(NamedTuple):
    """The cost columns of each unit, and the standardised indices of the neighbours of its first op."""

    costs: Float[Tensor, "units costs"]
    neighbours: Float[Tensor, "units neighbours"]


class CostOps(nn.Module):
    """Op embeddings of cost columns, clamped to their range in training
    and kept apart, and 12 (adjacency); no parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.columns = CostColumns()
        self.range = TrainedRange(self.columns.width)
        self.width = self.columns.width + 2 * NEIGHBOURS

    def constants(self, problem: Problem, units: Units) -> CostOpConstants:
        first = np.unique(units.unit, return_index=True)[1]
        near = torch.from_numpy(standardised(neighbours(problem.graph))[first])
        return CostOpConstants(self.columns.ops(problem, units), near)

    def widen_ranges(self, constants: Sequence[CostOpConstants]) -> None:
        for each in constants:
            self.range.widen(each.costs)

    def forward(self, constants: CostOpConstants) -> Float[Tensor, "units width"]:
        return torch.cat([apart(self.range(constants.costs)), constants.neighbours], dim=-1)
