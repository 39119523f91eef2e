"""What ops of real graphs cost, row by row: the figures of one op belong together, so a row is taken as a whole.

A row is an op that runs a kernel and writes outputs of its own; the bytes that it touches are spelled out, whoever gives its inputs.
With it goes the persistent memory of the variables that it is the first to read: a product comes with its weights and what the
optimiser keeps of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import CONTROL, NONE, ComputationGraph, Op, Output


@dataclass(frozen=True, eq=False)
class DonorRows:
    """The ops of a graph whose figures may be taken, and the persistent bytes of each op of the graph with those of its variables."""

    graph: ComputationGraph
    ops: Int64[np.ndarray, " rows"]
    persistent_bytes: Int64[np.ndarray, " ops"]

    def op(self, row: int, name: str, block: int | None) -> Op:
        """An op of that name that costs what a row says."""
        graph, op = self.graph, int(self.ops[row])
        outputs = range(int(graph.output_ptr[op]), int(graph.output_ptr[op + 1]))
        kind = graph.kind[op]
        assert kind is not None
        return Op(
            name, kind, tuple(Output(int(graph.output_bytes[k]), graph.shape(k), graph.output_dtype[k]) for k in outputs),
            flops=int(graph.flops[op]), bytes_accessed=int(graph.effective_bytes_accessed[op]),
            persistent_bytes=int(self.persistent_bytes[op]), workspace_bytes=int(graph.workspace_bytes[op]),
            canonical_kind=graph.canonical_kind[op], block=block, layer=None if block is None else f"blocks.{block}",
        )  # fmt: skip


def donor_rows(graph: ComputationGraph) -> DonorRows:
    """The rows of a graph. Raises ValueError where it has none: where no op runs a kernel that gives data of its own."""
    shares = np.zeros(graph.num_ops, dtype=bool)
    shares[graph.output_op[graph.output_alias != NONE]] = True
    gives = np.zeros(graph.num_ops, dtype=bool)
    gives[graph.output_op[graph.output_bytes > 0]] = True
    ops = np.flatnonzero(graph.kernel & gives & ~shares)
    if not len(ops):
        raise ValueError(f"donors: {graph.name!r} has no op that runs a kernel and gives data of its own")
    return DonorRows(graph, ops, _with_variables(graph, ops))


def _with_variables(graph: ComputationGraph, ops: Int64[np.ndarray, " rows"]) -> Int64[np.ndarray, " ops"]:
    """Each op's persistent bytes, and those of the variables that it reads before any other row does."""
    held = graph.persistent_bytes.copy()
    is_row = np.zeros(graph.num_ops, dtype=bool)
    is_row[ops] = True
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    data = np.flatnonzero((graph.edge_output != CONTROL) & is_row[graph.edge_dst])
    variable = graph.output_op[graph.output_root[graph.edge_data[data]]]
    read = (graph.persistent_bytes[variable] > 0) & ~is_row[variable]
    data, variable = data[read], variable[read]
    earliest = np.argsort(position[graph.edge_dst[data]], kind="stable")
    variables, first = np.unique(variable[earliest], return_index=True)
    np.add.at(held, graph.edge_dst[data[earliest[first]]], graph.persistent_bytes[variables])
    return held


def all_rows(donors: Sequence[ComputationGraph]) -> tuple[DonorRows, ...]:
    """The rows of every donor. Raises ValueError without donors, or for one without rows."""
    if not donors:
        raise ValueError("donors: none given; pass at least one graph of the corpus, whose ops lend their costs")
    return tuple(donor_rows(graph) for graph in donors)
