"""What units are embedded from, whatever way their neighbours enter: `PaperColumns` (kinds and shapes) or `CostColumns`
(times, memory).

`ops` describes each unit by itself. `sums` are amounts that add up over the members of a group.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.policies.encoders.kinds import Vocabulary
from gnnplace.policies.encoders.paper import SHAPE_WIDTH, member_sums, output_shapes, standardised
from gnnplace.policies.features import NODE_FEATURES, node_features
from gnnplace.problems import Problem
from gnnplace.units.units import Units, output_bytes, persistent_bytes, work_ns


@runtime_checkable
class Columns(Protocol):
    """Numbers of units: `width` of `ops`, `sums_width` of `sums`."""

    width: int
    sums_width: int

    def ops(self, problem: Problem, units: Units) -> Float[Tensor, "units width"]: ...

    def sums(self, problem: Problem, units: Units) -> Float[Tensor, "units sums_width"]: ...


class PaperColumns:
    """Mirhoseini et al. (ICLR 2018) without neighbours: kind and standardised output shapes of a unit's first op; kinds
    and shapes summed.

    The kind is one-hot: the first linear layer makes the embedding that the paper looks up.
    """

    def __init__(self, kinds: Vocabulary) -> None:
        self.kinds = kinds
        self.width = self.sums_width = kinds.size + SHAPE_WIDTH

    def ops(self, problem: Problem, units: Units) -> Float[Tensor, "units width"]:
        first = np.unique(units.unit, return_index=True)[1]
        kind = nn.functional.one_hot(torch.from_numpy(self.kinds.rows(problem.graph)[first]), self.kinds.size)
        return torch.cat([kind.float(), torch.from_numpy(standardised(output_shapes(problem.graph))[first])], dim=1)

    def sums(self, problem: Problem, units: Units) -> Float[Tensor, "units sums_width"]:
        return member_sums(problem.graph, units, self.kinds)


class CostColumns:
    """What ops cost and where they lie in the step
    (`policies/features.py`); how many ops, their work and their memory summed.
    """

    width, sums_width = NODE_FEATURES, 4

    def ops(self, problem: Problem, units: Units) -> Float[Tensor, "units width"]:
        return torch.from_numpy(node_features(problem, units))

    def sums(self, problem: Problem, units: Units) -> Float[Tensor, "units sums_width"]:
        graph, ops = problem.graph, np.bincount(units.unit, minlength=units.num_units)
        amounts = [ops, work_ns(problem, units).min(axis=1), persistent_bytes(graph, units), output_bytes(graph, units)]
        return torch.from_numpy(np.stack(amounts, axis=1).astype(np.float32))
