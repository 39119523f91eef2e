"""Columns that describe units, for every op encoder: `PaperColumns` (kinds, shapes) or `CostColumns` (times, memory).

`ops` describes each unit by itself. `sums` are amounts that add up over the members of a group. `TrainedRange` and
`apart` scale columns and embeddings. `CostOps` is the encoder of the costs that exchanges no messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gnnplace.policies.encoders.kinds import Vocabulary
from gnnplace.policies.encoders.paper import (
    NEIGHBOURS,
    SHAPE_WIDTH,
    member_sums,
    neighbours,
    output_shapes,
    standardised,
)
from gnnplace.policies.features import NODE_FEATURES, node_features
from gnnplace.problems import Problem
from gnnplace.units.units import Units, output_bytes, persistent_bytes, work_ns


@runtime_checkable
class Columns(Protocol):
    """Numbers of each unit: `ops` has `width` of them, `sums` has `sums_width`."""

    width: int
    sums_width: int

    def ops(self, problem: Problem, units: Units) -> Float[Tensor, "units width"]: ...

    def sums(self, problem: Problem, units: Units) -> Float[Tensor, "units sums_width"]: ...


class PaperColumns:
    """The columns of Mirhoseini et al. (ICLR 2018) without its neighbours.

    `ops` are the kind and the standardised output shapes of a unit's first op; `sums` are kinds and shapes over all
    ops. The kind is one-hot, so the first linear layer is the embedding that the paper looks up.
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
    """Costs: `ops` are `features.node_features`; `sums` are the number of ops, their work and their memory."""

    width, sums_width = NODE_FEATURES, 4

    def ops(self, problem: Problem, units: Units) -> Float[Tensor, "units width"]:
        return torch.from_numpy(node_features(problem, units))

    def sums(self, problem: Problem, units: Units) -> Float[Tensor, "units sums_width"]:
        graph, num_ops = problem.graph, np.bincount(units.unit, minlength=units.num_units)
        work = work_ns(problem, units).min(axis=1)
        amounts = [num_ops, work, persistent_bytes(graph, units), output_bytes(graph, units)]
        return torch.from_numpy(np.stack(amounts, axis=1).astype(np.float32))


class TrainedRange(nn.Module):
    """Clamps every column to its range in training; passes values on before any training.

    Networks extrapolate badly. The weights of a column that is constant in training (a time step, where no graph is
    recurrent) stay as they were initialised.
    """

    lowest: Tensor
    highest: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("lowest", torch.full((columns,), torch.inf))
        self.register_buffer("highest", torch.full((columns,), -torch.inf))

    def widen(self, rows: Float[Tensor, "rows columns"]) -> None:
        """Widens the range to these rows; there may be none."""
        if len(rows):
            self.lowest, self.highest = (
                torch.minimum(self.lowest, rows.amin(0)),
                torch.maximum(self.highest, rows.amax(0)),
            )

    def forward(self, values: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        return values if (self.lowest > self.highest).any() else values.clamp(self.lowest, self.highest)


SMALLEST = 1e-6  # a mean square below this counts as 0: equal rows, or a graph of one unit


def apart(
    rows: Float[Tensor, "rows width"], graph: Int64[Tensor, " rows"] | None = None
) -> Float[Tensor, "rows width"]:
    """The rows minus their graph's mean, scaled to a mean square of 1 (PairNorm, Zhao and Akoglu, ICLR 2020).

    The common part of a GNN's embeddings is several times as large as their differences. A Grouper that reads both
    moves all units at once, and ends with one group. `graph` is as in `mean_by_graph`.
    """
    centred = rows - mean_by_graph(rows, graph)
    square = mean_by_graph(centred.square().mean(dim=1, keepdim=True), graph)
    return centred / square.clamp(min=SMALLEST).sqrt()


def mean_by_graph(
    rows: Float[Tensor, "rows width"], graph: Int64[Tensor, " rows"] | None
) -> Float[Tensor, "rows width"]:
    """The mean over each row's graph.

    `graph` is the number of each row's graph, `0..graphs-1`, each with a row at least; None: one graph.
    """
    if graph is None:
        return rows.mean(dim=0, keepdim=True).expand_as(rows)
    nodes = graph.bincount()
    sums = rows.new_zeros(len(nodes), rows.shape[1]).index_add(0, graph, rows)
    return (sums / nodes.unsqueeze(1))[graph]


class CostOpConstants(NamedTuple):
    """The cost columns of each unit, and the standardised indices of the neighbours of its first op."""

    costs: Float[Tensor, "units costs"]
    neighbours: Float[Tensor, "units neighbours"]


class CostOps(nn.Module):
    """An op encoder without parameters (`encoder.OpEncoder`): costs, and neighbours as the paper writes them.

    The cost columns are clamped to their range in training and kept apart. The 12 numbers of adjacency are the
    breadth-first indices of the paper.
    """

    def __init__(self) -> None:
        super().__init__()
        self.columns = CostColumns()
        self.range = TrainedRange(self.columns.width)
        self.width = self.columns.width + 2 * NEIGHBOURS

    def constants(self, problem: Problem, units: Units) -> CostOpConstants:
        first = np.unique(units.unit, return_index=True)[1]
        indices = torch.from_numpy(standardised(neighbours(problem.graph))[first])
        return CostOpConstants(self.columns.ops(problem, units), indices)

    def widen_ranges(self, constants: Sequence[CostOpConstants]) -> None:
        for graph in constants:
            self.range.widen(graph.costs)

    def forward(self, constants: CostOpConstants) -> Float[Tensor, "units width"]:
        return torch.cat([apart(self.range(constants.costs)), constants.neighbours], dim=-1)
