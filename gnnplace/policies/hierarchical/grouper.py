"""The Grouper: a feed-forward network that scores every group for each op, independently of the other ops.

One hidden layer of 64 (Mirhoseini et al., ICLR 2018, section 3.1). The paper names no activation: ReLU here, and
`linear` is the authors' public code, where the two layers make one linear map of rank 64. With as many options as
devices the same network is the paper's ablation without grouping; `RandomGrouping` is its ablation without learning.
`ClusteredGrouping` are the parts that a Grouper may be taught, as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.clustering import clustering, groups_within
from gnnplace.policies.glorot import glorot
from gnnplace.policies.placing.base import Base
from gnnplace.problems import Problem
from gnnplace.units.units import Units

Activation = Literal["relu", "linear"]


class Grouper(nn.Module):
    """The logits of `options` for each op, from the op's embedding.

    After imitation a Grouper is unsure of many ops, and independent draws break groups up: `sharpness` multiplies the
    logits when it groups (`sharp`), not while it is taught.
    """

    def __init__(
        self, width: int, options: int, *, hidden: int = 64, activation: Activation = "relu", sharpness: float = 1.0
    ) -> None:
        super().__init__()
        self.options, self.sharpness = options, sharpness
        between = nn.ReLU() if activation == "relu" else nn.Identity()
        self.layers = nn.Sequential(nn.Linear(width, hidden), between, nn.Linear(hidden, options))
        glorot(self)

    def forward(self, embeddings: Float[Tensor, "ops width"]) -> Float[Tensor, "ops options"]:
        return self.layers(embeddings)

    def sharp(self, embeddings: Float[Tensor, "ops width"]) -> Float[Tensor, "ops options"]:
        """The logits by which ops are grouped."""
        return self.sharpness * self(embeddings)


@dataclass(frozen=True)
class RandomGrouping:
    """A grouping that is drawn uniformly and stays fixed while the Placer learns.

    It depends on the seed and the number of units alone.
    """

    options: int
    seed: int

    def of(self, problem: Problem, units: Units, base: Base | None = None) -> Int[Tensor, "1 units"]:
        """The group of each unit of a problem."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(self.options, (1, units.num_units), generator=generator)


@dataclass(frozen=True)
class ClusteredGrouping:
    """METIS's parts of each graph, numbered by when their work can start (`policies.clustering`)."""

    options: int

    def of(self, problem: Problem, units: Units, base: Base | None = None) -> Int[Tensor, "1 units"]:
        """The group of each unit of a problem."""
        return torch.from_numpy(clustering(problem, units, self.options))[None]


@dataclass(frozen=True)
class ScheduledGrouping:
    """METIS's parts within each device of the base schedule, so that a group stands on one device there."""

    options: int

    def of(self, problem: Problem, units: Units, base: Base | None = None) -> Int[Tensor, "1 units"] | None:
        """The group of each unit of a problem; None before the base is known."""
        if base is None:
            return None
        return torch.from_numpy(groups_within(problem, units, base.units(units.num_units), self.options))[None]


FixedGrouping = RandomGrouping | ClusteredGrouping | ScheduledGrouping
