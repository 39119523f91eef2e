"""Groups that no weight decides: random ones, METIS's parts of a graph, and its parts within a base schedule's devices.

Random groups are the paper's ablation without a learned grouping (Mirhoseini et al., ICLR 2018, section 4). METIS's
parts are what a Grouper may be taught, as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gnnplace.policies.clustering import clustering, groups_within
from gnnplace.policies.hierarchical.grouper import Grouped
from gnnplace.policies.placing.base import Base
from gnnplace.policies.protocol import Choose
from gnnplace.problems import Problem
from gnnplace.units.units import Units


@dataclass(frozen=True)
class FixedGrouping(ABC):
    """A `Grouping` that decides nothing."""

    options: int

    taught: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    scheduled: ClassVar[bool] = False

    @abstractmethod
    def reads(self, problem: Problem, units: Units, base: Base | None = None) -> Int[Tensor, "1 units"] | None:
        """The group of each unit of a problem."""

    def fixed(self, reads: Int[Tensor, "1 units"]) -> Int[Tensor, "1 units"]:
        return reads

    def group(
        self,
        reads: Int[Tensor, "1 units"],
        embeddings: Float[Tensor, "units width"] | None,
        choose: Choose,
        groupings: int,
    ) -> Grouped:
        return Grouped(reads)

    def decide(
        self, reads: Int[Tensor, "1 units"], embeddings: Float[Tensor, "units width"], choose: Choose, groupings: int
    ) -> NoReturn:
        raise NotImplementedError("fixed groups are no decision")

    def target(
        self, reads: Int[Tensor, "1 units"], group: Int[Tensor, " units"]
    ) -> Mapping[str, Int[Tensor, "1 units"]]:
        return {}


@dataclass(frozen=True)
class RandomGrouping(FixedGrouping):
    """A grouping that is drawn uniformly and stays fixed while the Placer learns.

    It depends on the seed and the number of units alone.
    """

    seed: int

    def reads(self, problem: Problem, units: Units, base: Base | None = None) -> Int[Tensor, "1 units"]:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(self.options, (1, units.num_units), generator=generator)


@dataclass(frozen=True)
class ClusteredGrouping(FixedGrouping):
    """METIS's parts of each graph, numbered by when their work can start (`policies.clustering`)."""

    def reads(self, problem: Problem, units: Units, base: Base | None = None) -> Int[Tensor, "1 units"]:
        return torch.from_numpy(clustering(problem, units, self.options))[None]


@dataclass(frozen=True)
class ScheduledGrouping(FixedGrouping):
    """METIS's parts within each device of the base schedule, so that a group stands on one device there."""

    scheduled: ClassVar[bool] = True

    def reads(self, problem: Problem, units: Units, base: Base | None = None) -> Int[Tensor, "1 units"] | None:
        if base is None:
            return None
        return torch.from_numpy(groups_within(problem, units, base.units(units.num_units), self.options))[None]
