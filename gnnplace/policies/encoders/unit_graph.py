"""A GNN over the graph of units in the place of the paper's op embeddings: its features are the constants of a problem."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.policies.encoders.gnn import GNNEncoder
from gnnplace.policies.features import EDGE_FEATURES, NODE_FEATURES, GraphFeatures, features
from gnnplace.problems import Problem
from gnnplace.units.units import Units


class UnitGraph(nn.Module):
    """Embeddings of `width` for each unit, after `rounds` rounds of message passing."""

    def __init__(self, *, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.width = width
        self.encoder = GNNEncoder(NODE_FEATURES, EDGE_FEATURES, width=width, rounds=rounds)

    def constants(self, problem: Problem, units: Units) -> GraphFeatures:
        return features(problem, units)

    def widen_ranges(self, constants: Sequence[GraphFeatures]) -> None:
        self.encoder.widen_ranges(constants)

    def forward(self, constants: GraphFeatures) -> Float[Tensor, "units width"]:
        return self.encoder(constants.node, constants.edges, constants.edge)
