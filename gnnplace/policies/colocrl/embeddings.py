"""What ColocRL reads of a colocation group: type, output shapes, adjacency (Mirhoseini et al., ICML 2017, section 3.2).

The paper embeds an op by a tunable embedding of its type, the zero-padded list of its output shapes, and a one-hot
vector of the ops that it reads or that read it. What it leaves open, decided here:

- *Groups*: a group is embedded as an op would be. Its type and its shapes are the means of its members', its neighbours
  the other groups that an edge joins with a member. The direction of edges does not enter; control edges count, as in
  the authors' code (`paper.py`).
- *Sizes*: a type has 20 numbers, shapes 6 outputs x 4 dimensions and the number of outputs, as for the authors' next
  paper. Types are the 200 most frequent of the training graph; all others share one more.
- *Scale*: each column of shapes is standardised over groups. Raw sizes would drown all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.policies.encoders.groups import edges_between
from gnnplace.policies.encoders.kinds import Vocabulary
from gnnplace.policies.encoders.paper import KIND_WIDTH, SHAPE_WIDTH, member_sums, standardised
from gnnplace.problems import Problem
from gnnplace.units.units import Units


class ColocationConstants(NamedTuple):
    """Of each group: the share of its members that are of each type, their
    mean shapes (standardised), and 1 for each neighbour.
    """

    types: Float[Tensor, "groups kinds"]
    shapes: Float[Tensor, "groups shapes"]
    adjacency: Float[Tensor, "groups columns"]


class ColocationGroups(nn.Module):
    """Embeddings of 20 (type) + 25 (output shapes) + a column for each of `groups` groups (adjacency)."""

    def __init__(self, kinds: Vocabulary, groups: int) -> None:
        super().__init__()
        self.kinds, self.groups = kinds, groups
        self.kind = nn.Embedding(kinds.size, KIND_WIDTH)
        self.width = KIND_WIDTH + SHAPE_WIDTH + groups

    def constants(self, problem: Problem, units: Units) -> ColocationConstants:
        """Raises ValueError where the problem has more groups than there are columns."""
        if units.num_units > self.groups:
            raise ValueError(
                f"{problem.graph.name}: {units.num_units} colocation groups, but this policy has learned {self.groups}"
            )
        size = torch.from_numpy(np.bincount(units.unit).astype(np.float32))
        means = member_sums(problem.graph, units, self.kinds) / size.unsqueeze(1)
        types, shapes = means.split([self.kinds.size, SHAPE_WIDTH], dim=1)
        edges = edges_between(problem, units)
        adjacency = torch.zeros(units.num_units, self.groups)
        adjacency[edges.flatten(), edges.flip(0).flatten()] = 1.0
        return ColocationConstants(types, torch.from_numpy(standardised(shapes.numpy())), adjacency)

    def widen_ranges(self, constants: Sequence[ColocationConstants]) -> None:
        """Nothing: a policy with these columns is for one graph."""

    def forward(self, constants: ColocationConstants) -> Float[Tensor, "groups width"]:
        return torch.cat([constants.types @ self.kind.weight, constants.shapes, constants.adjacency], dim=-1)
