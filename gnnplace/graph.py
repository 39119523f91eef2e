"""The computation graph of one step: ops, their outputs and the edges between them, as CSR arrays.

A graph is immutable and checked when it is built: names are unique, indices exist, sizes are in range, an alias names an input of its op,
and there is no cycle. Ops keep the order of their document, because that order breaks ties.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.graph_columns import CANONICAL_KINDS as CANONICAL_KINDS
from gnnplace.graph_columns import CONTROL as CONTROL
from gnnplace.graph_columns import MAX_BYTES, MAX_EDGES, MAX_FLOPS, MAX_OPS, MAX_OUTPUTS, MAX_TIME_NS, columns, levels
from gnnplace.graph_columns import NONE as NONE
from gnnplace.graph_columns import PHASES as PHASES
from gnnplace.graph_columns import Categorical as Categorical
from gnnplace.graph_columns import GraphError as GraphError
from gnnplace.graph_columns import Op as Op
from gnnplace.graph_columns import Output as Output


@dataclass(frozen=True, eq=False)
class ComputationGraph:
    """Ops `0..ops-1` in document order. The outputs of op i are `output_ptr[i]:output_ptr[i+1]`. Edges are sorted and distinct.

    `output_alias` is the output whose buffer an output shares. `edge_output` is the index of an output within its op, or `CONTROL` for a
    control edge. `given_time_ns[:, j]` are the times for the device name or kind `given_keys[j]`. Absent values of `output_alias`,
    `given_time_ns`, `bytes_accessed`, `block`, `time_step` and `output_rank` are -1. Raises GraphError for an invalid graph.
    """

    name: str
    op_names: tuple[str, ...]
    kind: Categorical
    canonical_kind: Categorical
    phase: Categorical
    layer: Categorical
    colocation: Categorical
    allowed: Categorical  # device kinds joined by ","; absent: all kinds
    flops: Int64[np.ndarray, " ops"]
    bytes_accessed: Int64[np.ndarray, " ops"]
    persistent_bytes: Int64[np.ndarray, " ops"]
    workspace_bytes: Int64[np.ndarray, " ops"]
    kernel: Bool[np.ndarray, " ops"]
    block: Int32[np.ndarray, " ops"]
    time_step: Int32[np.ndarray, " ops"]
    given_keys: tuple[str, ...]
    given_time_ns: Int64[np.ndarray, "ops keys"]
    output_ptr: Int64[np.ndarray, " ops_plus_1"]
    output_bytes: Int64[np.ndarray, " outputs"]
    output_dtype: Categorical
    output_rank: Int32[np.ndarray, " outputs"]
    output_dims: Int64[np.ndarray, " dims"]
    output_alias: Int64[np.ndarray, " outputs"]
    output_is_result: Bool[np.ndarray, " outputs"]
    edge_src: Int32[np.ndarray, " edges"]
    edge_output: Int32[np.ndarray, " edges"]
    edge_dst: Int32[np.ndarray, " edges"]

    def __post_init__(self) -> None:
        _check(self)
        for column in fields(self):
            value = getattr(self, column.name)
            array = value.index if isinstance(value, Categorical) else value
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        assert len(self.order) == self.num_ops  # `order` raises GraphError for a cycle

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled graph is built anew, since its arrays could be written to, for which kernels would be compiled anew."""
        return type(self), tuple(getattr(self, column.name) for column in fields(self))

    @classmethod
    def from_ops(cls, name: str, ops: Sequence[Op], edges: Iterable[tuple[int, int, int]]) -> ComputationGraph:
        """The graph of op records and edges `(source op, output or CONTROL, destination op)`. Duplicate edges count once."""
        return cls(name=name, **columns(ops, edges))

    @property
    def num_ops(self) -> int:
        return len(self.op_names)

    @property
    def num_edges(self) -> int:
        return len(self.edge_src)

    @cached_property
    def output_op(self) -> Int32[np.ndarray, " outputs"]:
        """The op of each output."""
        return np.repeat(np.arange(self.num_ops, dtype=np.int32), np.diff(self.output_ptr))

    @cached_property
    def edge_data(self) -> Int64[np.ndarray, " edges"]:
        """The output that each edge carries, -1 for a control edge."""
        return np.where(self.edge_output == CONTROL, NONE, self.output_ptr[self.edge_src] + self.edge_output)

    @cached_property
    def edge_bytes(self) -> Int64[np.ndarray, " edges"]:
        """The bytes that each edge carries, 0 for a control edge."""
        return np.where(self.edge_data == NONE, 0, np.append(self.output_bytes, 0)[self.edge_data])

    @cached_property
    def out_ptr(self) -> Int64[np.ndarray, " ops_plus_1"]:
        """The out-edges of op i are edges `out_ptr[i]:out_ptr[i+1]`: edges are sorted by source."""
        return np.searchsorted(self.edge_src, np.arange(self.num_ops + 1)).astype(np.int64)

    @cached_property
    def in_edges(self) -> Int64[np.ndarray, " edges"]:
        """Edge numbers sorted by destination; those of op i are `in_edges[in_ptr[i]:in_ptr[i+1]]`."""
        return np.argsort(self.edge_dst, kind="stable").astype(np.int64)

    @cached_property
    def in_ptr(self) -> Int64[np.ndarray, " ops_plus_1"]:
        return np.concatenate([[0], np.cumsum(np.bincount(self.edge_dst, minlength=self.num_ops))]).astype(np.int64)

    @cached_property
    def output_root(self) -> Int64[np.ndarray, " outputs"]:
        """The root of each output, which owns its buffer: the output itself, or the end of its chain of aliases."""
        root = np.where(self.output_alias == NONE, np.arange(len(self.output_alias)), self.output_alias)
        while not np.array_equal(root, root[root]):
            root = root[root]
        return root

    @cached_property
    def order(self) -> Int32[np.ndarray, " ops"]:
        """Ops in topological order, by (longest distance from a source, index)."""
        order = np.lexsort((np.arange(self.num_ops), self.level)).astype(np.int32)
        order.setflags(write=False)
        return order

    @cached_property
    def level(self) -> Int32[np.ndarray, " ops"]:
        """The number of edges on the longest path that ends in each op."""
        level, seen = levels(self.num_ops, self.out_ptr, self.edge_dst)
        if seen < self.num_ops:
            op = int(np.flatnonzero(level == NONE)[0])
            raise GraphError(f"ops[{op}] ({self.op_names[op]!r}): lies on or behind a cycle; a step's graph must be acyclic")
        level.setflags(write=False)
        return level

    @cached_property
    def effective_bytes_accessed(self) -> Int64[np.ndarray, " ops"]:
        """`bytes_accessed`, or where absent the bytes of the distinct data inputs plus those of all outputs."""
        moved = np.zeros(self.num_ops, dtype=np.int64)
        np.add.at(moved, self.edge_dst, self.edge_bytes)
        np.add.at(moved, self.output_op, self.output_bytes)
        return np.where(self.bytes_accessed == NONE, moved, self.bytes_accessed)

    def shape(self, output: int) -> tuple[int, ...] | None:
        """The shape of an output, or None if it is unknown."""
        if self.output_rank[output] == NONE:
            return None
        start = int(self._dims_ptr[output])
        return tuple(self.output_dims[start : start + int(self.output_rank[output])].tolist())

    @cached_property
    def _dims_ptr(self) -> Int64[np.ndarray, " outputs_plus_1"]:
        return np.concatenate([[0], np.cumsum(np.maximum(self.output_rank, 0))]).astype(np.int64)

    @cached_property
    def sha256(self) -> str:
        """The checksum of the content: the name, dtype, shape and bytes of every column."""
        digest = hashlib.sha256()
        for column in fields(self):
            value = getattr(self, column.name)
            parts = (value.values, value.index) if isinstance(value, Categorical) else (value,)
            digest.update(column.name.encode())
            for part in parts:
                if isinstance(part, np.ndarray):
                    digest.update(f"{part.dtype.str}{part.shape}".encode() + part.tobytes())
                else:
                    digest.update(repr(part).encode())
        return digest.hexdigest()


def _first(bad: Bool[np.ndarray, " rows"]) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


def _check(graph: ComputationGraph) -> None:
    _check_counts(graph)
    _check_ops(graph)
    _check_outputs(graph)
    _check_edges(graph)


def _check_counts(graph: ComputationGraph) -> None:
    counts = (("ops", graph.num_ops, MAX_OPS), ("edges", graph.num_edges, MAX_EDGES), ("outputs", len(graph.output_bytes), MAX_OUTPUTS))
    for what, count, limit in counts:
        if count > limit:
            raise GraphError(f"{what}: {count} is more than the {limit} that a graph may have")
    if graph.num_ops == 0:
        raise GraphError("ops: a graph has at least one op")
    if len(set(graph.op_names)) < graph.num_ops:
        seen: set[str] = set()
        for op, name in enumerate(graph.op_names):
            if name in seen:
                raise GraphError(f"ops[{op}].name: {name!r} is not unique")
            seen.add(name)


def _check_ops(graph: ComputationGraph) -> None:
    ranges = {
        "flops": (graph.flops, 0, MAX_FLOPS), "bytes_accessed": (graph.bytes_accessed, NONE, MAX_BYTES),
        "persistent_bytes": (graph.persistent_bytes, 0, MAX_BYTES), "workspace_bytes": (graph.workspace_bytes, 0, MAX_BYTES),
        "block": (graph.block, NONE, 2**31 - 1), "time_step": (graph.time_step, NONE, 2**31 - 1),
    }  # fmt: skip
    for column, (values, low, high) in ranges.items():
        if (op := _first((values < low) | (values > high))) is not None:
            raise GraphError(f"ops[{op}].{column}: {values[op]} is not between 0 and {high}")
    given = graph.given_time_ns
    if (bad := _first(np.any((given < NONE) | (given > MAX_TIME_NS), axis=1))) is not None:
        raise GraphError(f"ops[{bad}].time_ns: {given[bad].tolist()} is not between 0 and {MAX_TIME_NS} ns")
    for column, words in (("phase", PHASES), ("canonical_kind", CANONICAL_KINDS)):
        unknown = [value for value in getattr(graph, column).values if value not in words]
        if unknown:
            op = int(np.argmax(getattr(graph, column).among(unknown)))
            raise GraphError(f"ops[{op}].{column}: {unknown[0]!r} is none of {', '.join(words)}")


def _check_outputs(graph: ComputationGraph) -> None:
    def place(output: int) -> str:
        op = graph.output_op[output]
        return f"ops[{op}].outputs[{output - graph.output_ptr[op]}]"

    if (bad := _first((graph.output_bytes < 0) | (graph.output_bytes > MAX_BYTES))) is not None:
        raise GraphError(f"{place(bad)}.bytes: {graph.output_bytes[bad]} is not between 0 and {MAX_BYTES}")
    if (bad := _first(graph.output_dims < 0)) is not None:
        output = int(np.searchsorted(graph._dims_ptr, bad, side="right")) - 1
        raise GraphError(f"{place(output)}.shape: {list(graph.shape(output) or ())} has a negative dimension")
    aliases = np.flatnonzero(graph.output_alias != NONE)
    inputs = np.unique(graph.edge_data * graph.num_ops + graph.edge_dst)
    missing = ~np.isin(graph.output_alias[aliases] * graph.num_ops + graph.output_op[aliases], inputs)
    if (bad := _first(missing)) is not None:
        output = int(aliases[bad])
        source = int(graph.output_alias[output])
        where = [int(graph.output_op[source]), int(source - graph.output_ptr[graph.output_op[source]])]
        raise GraphError(f"{place(output)}.alias_of: {where} is not a data input of the op")


def _check_edges(graph: ComputationGraph) -> None:
    num_outputs = np.diff(graph.output_ptr)[graph.edge_src]
    if (bad := _first((graph.edge_output < CONTROL) | (graph.edge_output >= num_outputs))) is not None:
        edge = [int(column[bad]) for column in (graph.edge_src, graph.edge_output, graph.edge_dst)]
        raise GraphError(f"edge {edge}: op {edge[0]} has {num_outputs[bad]} outputs, so output {edge[1]} does not exist")
