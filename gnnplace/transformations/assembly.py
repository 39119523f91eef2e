"""Builds a graph of copies of the ops of another graph, and of ops that are added to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer

from gnnplace import graph as graphs
from gnnplace.graph import CONTROL, NONE, Categorical, ComputationGraph, Op

Ints = Sequence[int] | Integer[np.ndarray, " n"]


class Assembly:
    """Rows of a new graph: first copies of the ops `source` of a graph, by these names, then added ops.

    Output k of all copies is a copy of output `output[k]` of the graph. Columns of the copies may be changed until the
    new graph is built.
    """

    def __init__(self, graph: ComputationGraph, source: Int64[np.ndarray, " copies"], names: Sequence[str]) -> None:
        self._graph, self._names, self._num_copies = graph, names, len(source)
        number = np.diff(graph.output_ptr)[source]
        self.output_ptr = np.concatenate([[0], np.cumsum(number)]).astype(np.int64)
        self.output = np.repeat(graph.output_ptr[source] - self.output_ptr[:-1], number) + np.arange(number.sum())
        self.copied = _copied(graph, source, self.output)
        self._added: list[Op] = []
        self._added_ptr = [len(self.output)]
        self._added_alias: list[int] = []
        self._edges: list[Int64[np.ndarray, "3 edges"]] = []

    def add(self, op: Op, alias: int = NONE) -> int:
        """The number of an op that is added. Its outputs share the buffer of output `alias` of the new graph."""
        self._added.append(op)
        self._added_ptr.append(self._added_ptr[-1] + len(op.outputs))
        self._added_alias.extend([alias] * len(op.outputs))
        return self._num_copies + len(self._added) - 1

    def first_output(self, op: int) -> int:
        """The number of the first output of an op of the new graph."""
        added = op - self._num_copies
        return int(self.output_ptr[op]) if added < 0 else self._added_ptr[added]

    def connect(self, src: Ints, output: Ints, dst: Ints) -> None:
        """Adds edges between ops of the new graph."""
        self._edges.append(np.stack([np.asarray(column, dtype=np.int64) for column in (src, output, dst)]))

    def columns(self) -> dict[str, Any]:
        """The columns of the new graph but its name."""
        added = graphs.columns(self._added, [])
        added["given_time_ns"] = np.full((len(self._added), len(self._graph.given_keys)), NONE, dtype=np.int64)
        added["output_alias"] = np.array(self._added_alias, dtype=np.int64)
        return {name: _joined(column, added[name]) for name, column in self.copied.items()} | {
            "op_names": (*self._names, *added["op_names"]),
            "given_keys": self._graph.given_keys,
            "output_ptr": np.array([*self.output_ptr.tolist(), *self._added_ptr[1:]], dtype=np.int64),
            **self._edge_columns(self._num_copies + len(self._added)),
        }

    def _edge_columns(self, ops: int) -> dict[str, Any]:
        """The distinct edges, sorted."""
        src, output, dst = np.concatenate(self._edges, axis=1) if self._edges else np.zeros((3, 0), dtype=np.int64)
        outputs = int(output.max(initial=CONTROL)) + 2
        key = np.unique((src * outputs + output + 1) * ops + dst)
        rest = key // ops
        return {
            "edge_src": (rest // outputs).astype(np.int32),
            "edge_output": (rest % outputs - 1).astype(np.int32),
            "edge_dst": (key % ops).astype(np.int32),
        }


def _copied(
    graph: ComputationGraph, source: Int64[np.ndarray, " copies"], output: Int64[np.ndarray, " outputs"]
) -> dict[str, Any]:
    """The columns of the copies, without edges; no output is an alias."""
    rank = np.maximum(graph.output_rank, 0).astype(np.int64)
    start, ranks = np.cumsum(rank) - rank, rank[output]
    dims = np.repeat(start[output] - (np.cumsum(ranks) - ranks), ranks) + np.arange(ranks.sum())
    return {
        "kind": graph.kind.rows(source), "canonical_kind": graph.canonical_kind.rows(source),
        "phase": graph.phase.rows(source), "layer": graph.layer.rows(source),
        "colocation": graph.colocation.rows(source), "allowed": graph.allowed.rows(source),
        "flops": graph.flops[source], "bytes_accessed": graph.bytes_accessed[source],
        "persistent_bytes": graph.persistent_bytes[source], "workspace_bytes": graph.workspace_bytes[source],
        "kernel": graph.kernel[source], "block": graph.block[source], "time_step": graph.time_step[source],
        "given_time_ns": graph.given_time_ns[source],
        "output_bytes": graph.output_bytes[output], "output_dtype": graph.output_dtype.rows(output),
        "output_rank": graph.output_rank[output], "output_dims": graph.output_dims[dims],
        "output_alias": np.full(len(output), NONE, dtype=np.int64), "output_is_result": graph.output_is_result[output],
    }  # fmt: skip


def _joined(first: Any, second: Any) -> Any:
    return first.joined(second) if isinstance(first, Categorical) else np.concatenate([first, second])
