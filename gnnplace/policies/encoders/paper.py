"""The embeddings of ops and of groups of Mirhoseini et al. (ICLR 2018, section 3): type, output shapes, adjacency.

What the paper leaves open, decided here:

- *Type* is "learned in the manner of a language model": an embedding of 20 trained jointly with the policy, drawn from
  N(0, 1) so that it weighs as much as a standardised column. The paper's vocabulary is the 200 most frequent kinds of
  the training graphs (`vocabulary`); all other kinds share one more row, which nothing trains where there are at most
  200. For transfer the vocabulary is canonical instead: the kinds that all frameworks share; those of no training graph
  count as nothing (`SeenColumns`).
- *Output shapes*: 6 outputs x 4 dimensions = 24 numbers and the number of outputs, for groups too (the paper says 16
  there, which contradicts its 6 x 4). Further outputs and dimensions are dropped; unused slots are -1.
- *Adjacency*: up to 6 distinct producers and 6 distinct consumers, those with the lowest BFS index first; control edges
  count. The BFS starts from the ops without inputs, in their order.
- *Scale*: each column is standardised over the ops of its graph. Raw sizes would make the Grouper deterministic from
  the start, as in the authors' public code.
- *Units*: ops that must stand together are grouped together; a unit is seen as its first op, and its group as all its
  ops.
- *Groups*: padding does not enter sums; counts and sums are divided by their root mean square over groups, which leaves
  an empty group all zeros; adjacency stays binary (`encoders/groups.py`: rows are sources).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor, nn

from gnnplace.compiled import kernel
from gnnplace.graph import ComputationGraph
from gnnplace.policies.encoders.groups import edges_between, group_adjacency, sum_by_group
from gnnplace.policies.encoders.kinds import SeenColumns, Vocabulary
from gnnplace.problems import Problem
from gnnplace.units.units import Units

KIND_WIDTH = 20
OUTPUTS, DIMS, NEIGHBOURS = 6, 4, 6
SHAPE_WIDTH = OUTPUTS * DIMS + 1
PADDING = -1


class PaperOpConstants(NamedTuple):
    """The kind of each unit's first op, and its standardised shapes and neighbours."""

    kind: Int[Tensor, " units"]
    numbers: Float[Tensor, "units numbers"]


class PaperOps(nn.Module):
    """Op embeddings of 20 (type) + 25 (output shapes and their number) + 12 (adjacency)."""

    def __init__(self, kinds: Vocabulary) -> None:
        super().__init__()
        self.kinds = kinds
        self.kind = nn.Embedding(kinds.size, KIND_WIDTH)
        self.seen = SeenColumns(kinds.size) if kinds.canonical else None
        self.width = KIND_WIDTH + SHAPE_WIDTH + 2 * NEIGHBOURS

    def constants(self, problem: Problem, units: Units) -> PaperOpConstants:
        first = np.unique(units.unit, return_index=True)[1]
        numbers = np.concatenate([output_shapes(problem.graph), neighbours(problem.graph)], axis=1)
        kind = self.kinds.rows(problem.graph)
        return PaperOpConstants(torch.from_numpy(kind[first]), torch.from_numpy(standardised(numbers)[first]))

    def widen_ranges(self, constants: Sequence[PaperOpConstants]) -> None:
        """The kinds that training sees; the other columns are standardised in every graph."""
        if self.seen is not None:
            for graph in constants:
                self.seen.widen(nn.functional.one_hot(graph.kind, self.kinds.size))

    def forward(self, constants: PaperOpConstants) -> Float[Tensor, "units width"]:
        weight = self.kind.weight if self.seen is None else self.seen(self.kind.weight.t()).t()
        return torch.cat([nn.functional.embedding(constants.kind, weight), constants.numbers], dim=-1)


class PaperGroupConstants(NamedTuple):
    """Summed over each unit's ops: how many of each kind, and output shapes without padding.

    And which unit feeds which.
    """

    sums: Float[Tensor, "units sums"]
    edges: Int[Tensor, "2 edges"]


class PaperGroups(nn.Module):
    """Group embeddings of one number a kind + 25 (shapes) + `groups` (adjacency); no parameters."""

    def __init__(self, kinds: Vocabulary, groups: int) -> None:
        super().__init__()
        self.kinds, self.groups = kinds, groups
        self.width = kinds.size + SHAPE_WIDTH + groups
        self.seen = SeenColumns(kinds.size + SHAPE_WIDTH) if kinds.canonical else None

    def constants(self, problem: Problem, units: Units) -> PaperGroupConstants:
        return PaperGroupConstants(member_sums(problem.graph, units, self.kinds), edges_between(problem, units))

    def widen_ranges(self, constants: Sequence[PaperGroupConstants]) -> None:
        """The kinds that training sees."""
        if self.seen is not None:
            for graph in constants:
                self.seen.widen(graph.sums)

    def forward(
        self,
        constants: PaperGroupConstants,
        grouping: Int[Tensor, "leading units"],
        members: Float[Tensor, "units ops_width"] | None,
    ) -> Float[Tensor, "leading groups width"]:
        """The embeddings of groups.

        `members` (op embeddings) don't enter: the paper's group embeddings are counts, through which no gradient
        passes.
        """
        columns = constants.sums if self.seen is None else self.seen(constants.sums)
        sums = sum_by_group(grouping, columns, self.groups)
        scale = sums.square().mean(dim=1, keepdim=True).sqrt()
        scaled = sums / torch.where(scale > 0, scale, 1)
        return torch.cat([scaled, group_adjacency(grouping, constants.edges, self.groups)], dim=-1)


def member_sums(graph: ComputationGraph, units: Units, kinds: Vocabulary) -> Float[Tensor, "units sums"]:
    """Summed over each unit's ops: how many of each kind, and output shapes without padding."""
    cell = units.unit.astype(np.int64) * kinds.size + kinds.rows(graph)
    counts = np.bincount(cell, minlength=units.num_units * kinds.size).reshape(units.num_units, kinds.size)
    shapes = output_shapes(graph)
    shapes[shapes == PADDING] = 0
    sums = np.zeros((units.num_units, SHAPE_WIDTH))
    np.add.at(sums, units.unit, shapes)
    return torch.from_numpy(np.concatenate([counts, sums], axis=1).astype(np.float32))


def output_shapes(graph: ComputationGraph) -> Float[np.ndarray, "ops 25"]:
    """The dimensions of each op's first outputs, padded with `PADDING`, and its number of outputs."""
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
    """The BFS indices of up to 6 producers and 6 consumers of each op, lowest first, padded with `PADDING`."""
    index = breadth_first_index(graph)
    producers = _lowest(graph.edge_dst, index[graph.edge_src], graph.num_ops)
    consumers = _lowest(graph.edge_src, index[graph.edge_dst], graph.num_ops)
    return np.concatenate([producers, consumers], axis=1)


def _lowest(
    end: Int[np.ndarray, " edges"], index: Int[np.ndarray, " edges"], num_ops: int
) -> Float[np.ndarray, "ops 6"]:
    pairs = np.unique(np.stack([end, index], axis=1).astype(np.int64), axis=0)
    rank = np.arange(len(pairs)) - np.searchsorted(pairs[:, 0], pairs[:, 0])
    kept = rank < NEIGHBOURS
    table = np.full((num_ops, NEIGHBOURS), PADDING, dtype=np.float64)
    table[pairs[kept, 0], rank[kept]] = pairs[kept, 1]
    return table


def standardised(columns: Float[np.ndarray, "ops feature"]) -> Float32[np.ndarray, "ops feature"]:
    """Mean 0 and standard deviation 1 over ops; 0 where a column is constant."""
    deviation = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    return scaled.astype(np.float32)


def breadth_first_index(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """Each op's number in a breadth-first traversal from the ops without inputs; ties go by op index.

    The traversal follows edges forwards, control edges too.
    """
    return _index(np.diff(graph.in_ptr), graph.out_ptr, graph.edge_dst)


@kernel
@no_type_check
def _index(num_inputs, out_ptr, edge_dst):
    num_ops = len(num_inputs)
    index = np.full(num_ops, -1, np.int64)
    queue = np.empty(num_ops, np.int64)
    met = 0
    for op in range(num_ops):
        if num_inputs[op] == 0:
            index[op] = met
            queue[met] = op
            met += 1
    head = 0
    while head < met:
        op = queue[head]
        head += 1
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            dst = edge_dst[edge]
            if index[dst] == -1:
                index[dst] = met
                queue[met] = dst
                met += 1
    return index
