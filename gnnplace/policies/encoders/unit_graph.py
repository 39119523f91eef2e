"""Message passing over the graph of units: each unit's own columns (`columns.py`), then rounds of messages with what edges carry."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.policies.encoders.apart import apart
from gnnplace.policies.encoders.columns import Columns
from gnnplace.policies.encoders.gnn import GNNEncoder
from gnnplace.policies.features import EDGE_FEATURES, GraphFeatures, edges_with_features
from gnnplace.problems import Problem
from gnnplace.units.units import Units


class UnitGraph(nn.Module):
    """Embeddings of `width` for each unit, after `rounds` rounds of message passing; without `kept_apart` they share what they share."""

    def __init__(self, columns: Columns, *, width: int = 64, rounds: int = 3, kept_apart: bool = True) -> None:
        super().__init__()
        self.columns, self.width, self.own_width, self.kept_apart = columns, width, columns.width, kept_apart
        self.encoder = GNNEncoder(columns.width, EDGE_FEATURES, width=width, rounds=rounds)

    def constants(self, problem: Problem, units: Units) -> GraphFeatures:
        return GraphFeatures(self.columns.ops(problem, units), *edges_with_features(problem, units))

    def widen_ranges(self, constants: Sequence[GraphFeatures]) -> None:
        self.encoder.widen_ranges(constants)

    def forward(self, constants: GraphFeatures) -> Float[Tensor, "units width"]:
        embedded = self.encoder(constants.node, constants.edges, constants.edge)
        return apart(embedded) if self.kept_apart else embedded

    def own(self, constants: GraphFeatures) -> Float[Tensor, "units own_width"]:
        return self.encoder.node_range(constants.node)
