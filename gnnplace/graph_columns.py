"""Op records, the columns of a graph, and their vocabularies.

Front-ends describe ops one by one (`Op`, `Output`); `columns` turns these records into the arrays of a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.compiled import kernel

CONTROL = -1  # the output index of a control edge
NONE = -1  # no category, block, time step, dtype, shape or alias

PHASES = ("forward", "backward_data", "backward_weight", "update", "other")
CANONICAL_KINDS = (
    "matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight", "pool", "pool_grad",
    "normalization", "normalization_grad", "softmax", "loss", "attention", "embedding", "embedding_grad",
    "elementwise", "activation", "activation_grad", "reduce", "concat", "split", "slice", "transpose", "reshape",
    "gather", "scatter", "cast", "fill", "random", "variable", "update", "input", "shape", "control", "other",
)  # fmt: skip

MAX_OPS, MAX_EDGES, MAX_OUTPUTS = 10_000_000, 100_000_000, 50_000_000
MAX_BYTES, MAX_FLOPS, MAX_TIME_NS = 2**50, 2**60, 2**50


class GraphError(ValueError):
    """An invalid graph. The message names the place, the value and the rule."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output of an op. `alias_of` is (source op, output) of the data input whose buffer it shares."""

    bytes: int
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    alias_of: tuple[int, int] | None = None
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One op as front-ends describe it; docs/formats.md#graph says what each field means."""

    name: str
    kind: str
    outputs: tuple[Output, ...] = ()
    flops: int = 0
    bytes_accessed: int | None = None
    persistent_bytes: int = 0
    workspace_bytes: int = 0
    kernel: bool = True
    time_ns: Mapping[str, int] = field(default_factory=dict)
    allowed: tuple[str, ...] | None = None
    colocation: str | None = None
    layer: str | None = None
    phase: str | None = None
    block: int | None = None
    time_step: int | None = None
    canonical_kind: str | None = None


@dataclass(frozen=True, eq=False)
class Categorical:
    """A column of strings: the distinct `values` in order of first use, and the `index` of each row's value (-1: none)."""

    values: tuple[str, ...]
    index: Int32[np.ndarray, " rows"]

    @classmethod
    def of(cls, strings: Iterable[str | None]) -> Categorical:
        table: dict[str, int] = {}
        index = [NONE if s is None else table.setdefault(s, len(table)) for s in strings]
        return cls(tuple(table), np.array(index, dtype=np.int32))

    def __getitem__(self, row: int) -> str | None:
        index = int(self.index[row])
        return None if index == NONE else self.values[index]

    def among(self, wanted: Iterable[str]) -> Bool[np.ndarray, " rows"]:
        """True on each row whose value is one of `wanted`."""
        chosen = set(wanted)
        table = np.array([value in chosen for value in self.values] + [False])
        return table[self.index]


def columns(ops: Sequence[Op], edges: Iterable[tuple[int, int, int]]) -> dict[str, Any]:
    """The columns of a ComputationGraph by name, from op records and edges `(source op, output, destination op)`. Raises GraphError."""
    num_outputs = [len(op.outputs) for op in ops]
    output_ptr = np.concatenate([[0], np.cumsum(num_outputs, dtype=np.int64)]).astype(np.int64)
    outputs = [output for op in ops for output in op.outputs]
    keys = tuple(dict.fromkeys(key for op in ops for key in op.time_ns))
    return dict(
        op_names=tuple(op.name for op in ops),
        kind=Categorical.of(op.kind for op in ops),
        canonical_kind=Categorical.of(op.canonical_kind for op in ops),
        phase=Categorical.of(op.phase for op in ops),
        layer=Categorical.of(op.layer for op in ops),
        colocation=Categorical.of(op.colocation for op in ops),
        allowed=Categorical.of(None if op.allowed is None else ",".join(op.allowed) for op in ops),
        flops=_int64([op.flops for op in ops]),
        bytes_accessed=_int64([NONE if op.bytes_accessed is None else op.bytes_accessed for op in ops]),
        persistent_bytes=_int64([op.persistent_bytes for op in ops]),
        workspace_bytes=_int64([op.workspace_bytes for op in ops]),
        kernel=np.array([op.kernel for op in ops], dtype=bool),
        block=np.array([NONE if op.block is None else op.block for op in ops], dtype=np.int32),
        time_step=np.array([NONE if op.time_step is None else op.time_step for op in ops], dtype=np.int32),
        given_keys=keys,
        given_time_ns=_int64([[op.time_ns.get(key, NONE) for key in keys] for op in ops]).reshape(len(ops), len(keys)),
        output_ptr=output_ptr,
        output_bytes=_int64([output.bytes for output in outputs]),
        output_dtype=Categorical.of(output.dtype for output in outputs),
        output_rank=np.array([NONE if o.shape is None else len(o.shape) for o in outputs], dtype=np.int32),
        output_dims=_int64([dim for output in outputs for dim in output.shape or ()]),
        output_alias=_int64([_alias(output, output_ptr) for output in outputs]),
        output_is_result=np.array([output.is_result for output in outputs], dtype=bool),
        **_edge_columns(edges, len(ops)),
    )


def _int64(values: list) -> Int64[np.ndarray, "..."]:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError as error:
        raise GraphError(f"an integer of the graph does not fit 64 bits: {error}") from error


def _alias(output: Output, output_ptr: Int64[np.ndarray, " ops_plus_1"]) -> int:
    if output.alias_of is None:
        return NONE
    op, index = output.alias_of
    if not (0 <= op < len(output_ptr) - 1 and 0 <= index < output_ptr[op + 1] - output_ptr[op]):
        raise GraphError(f"alias_of: [{op}, {index}] names no output of the graph")
    return int(output_ptr[op] + index)


def _edge_columns(edges: Iterable[tuple[int, int, int]], num_ops: int) -> dict[str, Int32[np.ndarray, " edges"]]:
    table = np.array(list(edges), dtype=np.int64).reshape(-1, 3)
    for column in (0, 2):
        outside = (table[:, column] < 0) | (table[:, column] >= num_ops)
        if outside.any():
            edge = int(np.flatnonzero(outside)[0])
            raise GraphError(f"edges[{edge}]: {table[edge].tolist()} names op {table[edge, column]}, but there are {num_ops} ops")
    table = np.unique(table, axis=0).astype(np.int32) if len(table) else table.astype(np.int32)
    src, output, dst = (np.ascontiguousarray(table[:, column]) for column in range(3))
    return {"edge_src": src, "edge_output": output, "edge_dst": dst}


@kernel
@no_type_check
def levels(num_ops, out_ptr, edge_dst):
    """Kahn's algorithm: the level of every op (-1 on a cycle or after one), and the number of ops with a level."""
    waiting = np.zeros(num_ops, np.int64)
    for dst in edge_dst:
        waiting[dst] += 1
    level = np.full(num_ops, -1, np.int32)
    queue = np.empty(num_ops, np.int32)
    tail = 0
    for op in range(num_ops):
        if waiting[op] == 0:
            queue[tail] = op
            level[op] = 0
            tail += 1
    reach = np.zeros(num_ops, np.int32)
    head = 0
    while head < tail:
        op = queue[head]
        head += 1
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            dst = edge_dst[edge]
            reach[dst] = max(reach[dst], level[op] + 1)
            waiting[dst] -= 1
            if waiting[dst] == 0:
                level[dst] = reach[dst]
                queue[tail] = dst
                tail += 1
    return level, tail
