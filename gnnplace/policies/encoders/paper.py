"""The paper's embeddings of ops and of groups: type, output shapes, adjacency (Mirhoseini et al., ICLR 2018, section 3).

What the paper leaves open, decided here:

- *Type* is "learned in the manner of a language model": an embedding of 20 trained jointly with the policy, drawn from
  N(0, 1) so that it weighs as much as a standardised column. The vocabulary is the 200 most frequent kinds of the
  training graphs (`vocabulary`); all other kinds share one more row, which stands for "a rare kind".
- *Output shapes*: 6 outputs x 4 dimensions = 24 numbers and the number of outputs, for groups too (the paper says 16
  there, which contradicts its 6 x 4). Further outputs and dimensions are dropped; unused slots are -1.
- *Adjacency*: up to 6 distinct producers and 6 distinct consumers, those with the lowest BFS index first; control edges count.
  The BFS starts from the ops without inputs, in their order.
- *Scale*: each column is standardised over the ops of its graph. Raw sizes would make the Grouper deterministic from the
  start, as in the authors' public code.
- *Units*: ops that must stand together are grouped together; a unit is seen as its first op, and its group as all its ops.
- *Groups*: padding does not enter sums; counts and sums are divided by their root mean square over groups, which leaves
  an empty group all zeros; adjacency stays binary (`encoders/groups.py`: rows are sources).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor, nn

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.policies.encoders.breadth_first import breadth_first_index
from gnnplace.policies.encoders.groups import edges_between, group_adjacency, sum_by_group
from gnnplace.problems import Problem
from gnnplace.units.units import Units

KINDS, KIND_WIDTH = 200, 20
OUTPUTS, DIMS, NEIGHBOURS = 6, 4, 6
SHAPE_WIDTH = OUTPUTS * DIMS + 1
PADDING = -1


def vocabulary(graphs: Iterable[ComputationGraph], size: int = KINDS) -> tuple[str, ...]:
    """The most frequent kinds of op, ties in alphabetical order."""
    counts: Counter[str] = Counter()
    for graph in graphs:
        counts.update(dict(zip(graph.kind.values, np.bincount(graph.kind.index, minlength=len(graph.kind.values)).tolist(), strict=True)))
    return tuple(sorted(counts, key=lambda kind: (-counts[kind], kind))[:size])


class PaperOpConstants(NamedTuple):
    """Of each unit's first op: its kind's row, and its standardised shapes and neighbours."""

    kind: Int[Tensor, " units"]
    numbers: Float[Tensor, "units numbers"]


class PaperOps(nn.Module):
    """Op embeddings of 20 (type) + 25 (output shapes and their number) + 12 (adjacency)."""

    def __init__(self, kinds: Sequence[str]) -> None:
        super().__init__()
        self.kinds = tuple(kinds)
        self.kind = nn.Embedding(len(self.kinds) + 1, KIND_WIDTH)
        self.width = KIND_WIDTH + SHAPE_WIDTH + 2 * NEIGHBOURS

    def constants(self, problem: Problem, units: Units) -> PaperOpConstants:
        first = np.unique(units.unit, return_index=True)[1]
        numbers = np.concatenate([output_shapes(problem.graph), neighbours(problem.graph)], axis=1)
        kind = _kind_rows(problem.graph, self.kinds)
        return PaperOpConstants(torch.from_numpy(kind[first]), torch.from_numpy(_standardised(numbers)[first]))

    def widen_ranges(self, constants: Sequence[PaperOpConstants]) -> None:
        """Nothing: columns are standardised in every graph."""

    def forward(self, constants: PaperOpConstants) -> Float[Tensor, "units width"]:
        return torch.cat([self.kind(constants.kind), constants.numbers], dim=-1)


class PaperGroupConstants(NamedTuple):
    """Summed over each unit's ops: how many of each kind, and output shapes without padding. And which unit feeds which."""

    sums: Float[Tensor, "units sums"]
    edges: Int[Tensor, "2 edges"]


class PaperGroups(nn.Module):
    """Group embeddings of one number a kind (and one for all rare kinds) + 25 (shapes) + `groups` (adjacency); no parameters."""

    def __init__(self, kinds: Sequence[str], groups: int) -> None:
        super().__init__()
        self.kinds, self.groups = tuple(kinds), groups
        self.width = len(self.kinds) + 1 + SHAPE_WIDTH + groups

    def constants(self, problem: Problem, units: Units) -> PaperGroupConstants:
        graph, width = problem.graph, len(self.kinds) + 1
        cell = units.unit.astype(np.int64) * width + _kind_rows(graph, self.kinds)
        counts = np.bincount(cell, minlength=units.num_units * width).reshape(units.num_units, width)
        shapes = output_shapes(graph)
        shapes[shapes == PADDING] = 0
        sums = np.zeros((units.num_units, SHAPE_WIDTH))
        np.add.at(sums, units.unit, shapes)
        columns = np.concatenate([counts, sums], axis=1).astype(np.float32)
        return PaperGroupConstants(torch.from_numpy(columns), edges_between(problem, units))

    def forward(
        self, constants: PaperGroupConstants, grouping: Int[Tensor, "leading units"], members: Float[Tensor, "units ops_width"] | None
    ) -> Float[Tensor, "leading groups width"]:
        """`members` (op embeddings) don't enter: the paper's group embeddings are counts, through which no gradient passes."""
        sums = sum_by_group(grouping, constants.sums, self.groups)
        scale = sums.square().mean(dim=1, keepdim=True).sqrt()
        scaled = sums / torch.where(scale > 0, scale, 1)
        return torch.cat([scaled, group_adjacency(grouping, constants.edges, self.groups)], dim=-1)


def output_shapes(graph: ComputationGraph) -> Float[np.ndarray, "ops 25"]:
    """The sizes of the first outputs' first dimensions, output by output, `PADDING` where there is none; and how many outputs."""
    shapes = np.full((graph.num_ops, OUTPUTS, DIMS), PADDING, dtype=np.float64)
    rank = np.maximum(graph.output_rank, 0)
    output = np.repeat(np.arange(len(rank)), rank)  # of each dimension
    dim = np.arange(len(output)) - np.repeat(np.cumsum(rank) - rank, rank)
    op = graph.output_op[output]
    index = output - graph.output_ptr[op]
    kept = (index < OUTPUTS) & (dim < DIMS)
    shapes[op[kept], index[kept], dim[kept]] = graph.output_dims[kept]
    return np.concatenate([shapes.reshape(graph.num_ops, -1), np.diff(graph.output_ptr)[:, None]], axis=1)


def neighbours(graph: ComputationGraph) -> Float[np.ndarray, "ops 12"]:
    """The BFS indices of up to 6 producers and 6 consumers of each op, lowest first, `PADDING` where there are fewer."""
    index = breadth_first_index(graph)
    producers = _lowest(graph.edge_dst, index[graph.edge_src], graph.num_ops)
    consumers = _lowest(graph.edge_src, index[graph.edge_dst], graph.num_ops)
    return np.concatenate([producers, consumers], axis=1)


def _lowest(end: Int[np.ndarray, " edges"], index: Int[np.ndarray, " edges"], num_ops: int) -> Float[np.ndarray, "ops 6"]:
    pairs = np.unique(np.stack([end, index], axis=1).astype(np.int64), axis=0)
    rank = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0])
    kept = rank < NEIGHBOURS
    table = np.full((num_ops, NEIGHBOURS), PADDING, dtype=np.float64)
    table[pairs[kept, 0], rank[kept]] = pairs[kept, 1]
    return table


def _kind_rows(graph: ComputationGraph, kinds: tuple[str, ...]) -> Int64[np.ndarray, " ops"]:
    """Each op's row in the vocabulary; the last row is that of every kind that it lacks."""
    rows = {kind: row for row, kind in enumerate(kinds)}
    table = np.array([rows.get(kind, len(kinds)) for kind in graph.kind.values], dtype=np.int64)
    assert (graph.kind.index != NONE).all()
    return table[graph.kind.index]


def _standardised(columns: Float[np.ndarray, "ops feature"]) -> Float32[np.ndarray, "ops feature"]:
    """Mean 0 and standard deviation 1 over ops; 0 where a column is constant."""
    deviation = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    return scaled.astype(np.float32)
