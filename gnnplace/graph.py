"""The computation graph of one step: ops, their outputs and the edges between them, as CSR arrays.

A graph is immutable and checked when it is built: names are unique, indices exist, sizes are in range, an alias names
an input of its op, and there is no cycle. Ops keep the order of their document, which breaks ties.

The module is long because the definition of an op, the columns of a graph and the rules of a valid graph are one idea.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer

from gnnplace.choices import CopiesName, Granularity, RuntimeName
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
    """One output of an op. `alias_of` is the (source op, output) of the data input whose buffer it shares."""

    bytes: int
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    alias_of: tuple[int, int] | None = None
    is_result: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One op as front-ends describe it; docs/formats.md#graph explains each field."""

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
    """A column of strings: the distinct `values` in order of first use, and each row's `index` into them (-1: none)."""

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
        """True for each row whose value is one of `wanted`."""
        wanted = set(wanted)
        is_wanted = np.array([value in wanted for value in self.values] + [False])
        return is_wanted[self.index]

    @property
    def present(self) -> tuple[str, ...]:
        """The values that a row has."""
        return tuple(self.values[index] for index in np.unique(self.index[self.index != NONE]).tolist())

    def rows(self, rows: Integer[np.ndarray, " rows"]) -> Categorical:
        """The column of some of the rows, in the order given."""
        return Categorical(self.values, self.index[rows])

    def filled(self, rows: Sequence[int], strings: Sequence[str]) -> Categorical:
        """The column in which some rows, if they are absent, have these values."""
        index = {row: value for row, value in zip(rows, strings, strict=True) if self.index[row] == NONE}
        return Categorical.of(index.get(row, self[row]) for row in range(len(self.index)))

    def joined(self, other: Categorical) -> Categorical:
        """The rows of this column, then those of another."""
        table = {value: number for number, value in enumerate(self.values)}
        number = [table.setdefault(value, len(table)) for value in other.values] + [NONE]
        index = np.concatenate([self.index, np.array(number, dtype=np.int32)[other.index]])
        return Categorical(tuple(table), index)


@dataclass(frozen=True, eq=False)
class Copies:
    """What the ops of a step of several micro-batches are copies of (docs/execution-model.md#micro-batches).

    `original` is the graph of one micro-batch. Op i is a copy of its op `source[i]` for micro-batch `micro_batch[i]`,
    or `NONE` if it runs once a step, on replica `replica[i]`. An `added` op is no copy but stands beside its `source`:
    a sum, mean or concatenation of its outputs, its state, a part of a ring, a fetch. `shares[r]` is the number of
    micro-batches of replica r. `Parallelism` explains `placed` to `ring_size`. Under a
    constraint, ops of `original` with equal numbers in `part` stay together in every form (`units/whole`).
    """

    original: ComputationGraph
    shares: tuple[int, ...]
    source: Int32[np.ndarray, " ops"]
    micro_batch: Int32[np.ndarray, " ops"]
    replica: Int32[np.ndarray, " ops"]
    added: Bool[np.ndarray, " ops"]
    placed: CopiesName = "together"
    shared: tuple[str, ...] = ()
    one_home: tuple[str, ...] = ()
    family_shares: tuple[tuple[str, tuple[int, ...]], ...] = ()
    ring_size: int = 0
    part: Int64[np.ndarray, " ops_of_one"] | None = None

    @property
    def micro_batches(self) -> int:
        return sum(self.shares)

    @property
    def replicas(self) -> int:
        return len(self.shares)


@dataclass(frozen=True, eq=False)
class Executed:
    """The runtime that executes a step, by its name, and the graph `plain` without that runtime's rules.

    The rules are colocation groups, allowed devices and control edges of the graph itself (`runtimes`), and what
    constrains its placements besides: the finest `granularity` of cuts, and whether `accelerators_only` work.
    """

    runtime: RuntimeName
    plain: ComputationGraph
    granularity: Granularity = "op"
    accelerators_only: bool = False


@dataclass(frozen=True, eq=False)
class ComputationGraph:
    """The ops of a step in document order, with their outputs and edges.

    The outputs of op i are `output_ptr[i]:output_ptr[i+1]`. Edges are sorted and distinct. `output_alias` is the output
    whose buffer an output shares. `edge_output` is the index of an output within its op, or `CONTROL` for a control
    edge. `given_time_ns[:, j]` are the times for the device name or kind `given_keys[j]`. Absent values of
    `output_alias`, `given_time_ns`, `bytes_accessed`, `block`, `time_step` and `output_rank` are -1. A graph of several
    micro-batches knows its `copies`, one with the rules of a runtime how it is `executed`. Raises GraphError for an
    invalid graph.
    """

    name: str
    op_names: tuple[str, ...]
    kind: Categorical
    canonical_kind: Categorical
    phase: Categorical
    layer: Categorical
    colocation: Categorical
    allowed: Categorical  # names and kinds of devices joined by ","; absent: all devices
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
    copies: Copies | None = None
    executed: Executed | None = None

    def __post_init__(self) -> None:
        _check(self)
        for column in fields(self):
            value = getattr(self, column.name)
            array = value.index if isinstance(value, Categorical) else value
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        assert len(self.order) == self.num_ops  # `order` raises GraphError for a cycle

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled graph is built anew: unpickled arrays would be writable, and kernels would be compiled for them."""
        return type(self), tuple(getattr(self, column.name) for column in fields(self))

    @classmethod
    def from_ops(cls, name: str, ops: Sequence[Op], edges: Iterable[tuple[int, int, int]]) -> ComputationGraph:
        """The graph of op records and edges `(source op, output or CONTROL, destination op)`.

        Of duplicate edges one is kept.
        """
        return cls(name=name, **columns(ops, edges))

    @property
    def num_ops(self) -> int:
        return len(self.op_names)

    @property
    def num_edges(self) -> int:
        return len(self.edge_src)

    @property
    def original(self) -> ComputationGraph:
        """The graph of one micro-batch: the graph itself, unless it has copies."""
        return self if self.copies is None else self.copies.original

    @property
    def plain(self) -> ComputationGraph:
        """The graph of one micro-batch without the rules of a runtime: that which was read."""
        one = self.original
        return one if one.executed is None else one.executed.plain

    @property
    def runtime(self) -> RuntimeName | None:
        """The runtime whose rules the graph has."""
        executed = self.original.executed
        return None if executed is None else executed.runtime

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of a step."""
        return 1 if self.copies is None else self.copies.micro_batches

    def check_one(self, what: str) -> None:
        """Raises ValueError for a step of several micro-batches, since `what`, a file, holds the graph of one."""
        if self.copies is not None:
            raise ValueError(
                f"micro_batches: {what} holds one, and {self.name!r} is a step of {self.micro_batches}; save its "
                "`original`, and its placement, whose document says which step of it was placed"
            )

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
        """The out-edges of op i are edges `out_ptr[i]:out_ptr[i+1]`, since edges are sorted by source."""
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
        """The output that owns each output's buffer: the output itself, or the end of its chain of aliases."""
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
        """The number of edges on the longest path to each op."""
        level, num_sorted = levels(self.num_ops, self.out_ptr, self.edge_dst)
        if num_sorted < self.num_ops:
            op = int(np.flatnonzero(level == NONE)[0])
            raise GraphError(
                f"ops[{op}] ({self.op_names[op]!r}): lies on or behind a cycle; a step's graph must be acyclic"
            )
        level.setflags(write=False)
        return level

    @cached_property
    def dispatched(self) -> Bool[np.ndarray, " ops"]:
        """True for ops without a kernel that a framework's executor handles: all but sources and aliases.

        A source has no inputs: a variable, a constant, an input of the step. All outputs of an alias are aliases: a
        read, a view, an identity. Nobody works for these where their bytes lie.
        """
        has_outputs = np.diff(self.output_ptr) > 0
        owns_output = np.bincount(self.output_op[self.output_alias == NONE], minlength=self.num_ops) > 0
        source, alias = np.diff(self.in_ptr) == 0, has_outputs & ~owns_output
        return ~(self.kernel | source | alias)

    @cached_property
    def effective_bytes_accessed(self) -> Int64[np.ndarray, " ops"]:
        """`bytes_accessed`; if absent, the bytes of the distinct data inputs plus those of all outputs."""
        moved = np.zeros(self.num_ops, dtype=np.int64)
        np.add.at(moved, self.edge_dst, self.edge_bytes)
        np.add.at(moved, self.output_op, self.output_bytes)
        return np.where(self.bytes_accessed == NONE, moved, self.bytes_accessed)

    @cached_property
    def uncounted(self) -> dict[str, int]:
        """The number of ops of each kind without a rule for its flops, which cost the time of their bytes alone.

        These ops have a kernel and the canonical kind `other`, but state neither flops nor a time.
        """
        ops = self.kernel & self.canonical_kind.among(["other"]) & (self.flops == 0)
        ops &= (self.given_time_ns == NONE).all(axis=1)
        return dict(sorted(Counter(self.kind[int(op)] or "" for op in np.flatnonzero(ops)).items()))

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
        """The checksum of the content: name, dtype, shape and bytes of every column."""
        digest = hashlib.sha256()
        for column in fields(self)[:-2]:  # `copies` and `executed` follow from the others
            value = getattr(self, column.name)
            parts = (value.values, value.index) if isinstance(value, Categorical) else (value,)
            digest.update(column.name.encode())
            for part in parts:
                if isinstance(part, np.ndarray):
                    digest.update(f"{part.dtype.str}{part.shape}".encode() + part.tobytes())
                else:
                    digest.update(repr(part).encode())
        return digest.hexdigest()


COLUMNS = tuple(column.name for column in fields(ComputationGraph) if column.name not in ("name", "copies", "executed"))


def _first(bad: Bool[np.ndarray, " rows"]) -> int | None:
    """The first row that is True, or None."""
    return int(np.argmax(bad)) if bad.any() else None


def distinct(values: Int64[np.ndarray, " values"]) -> Int64[np.ndarray, " distinct"]:
    """The different values in order. NumPy's `unique` hashes them first, which is 20 times slower on a million keys.

    >>> distinct(np.array([5, 2, 5])).tolist()
    [2, 5]
    """
    ordered = np.sort(values)
    new = np.ones(len(ordered), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return ordered[new]


def _check(graph: ComputationGraph) -> None:
    _check_counts(graph)
    _check_ops(graph)
    _check_outputs(graph)
    _check_edges(graph)


def _check_counts(graph: ComputationGraph) -> None:
    counts = (
        ("ops", graph.num_ops, MAX_OPS),
        ("edges", graph.num_edges, MAX_EDGES),
        ("outputs", len(graph.output_bytes), MAX_OUTPUTS),
    )
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
        "persistent_bytes": (graph.persistent_bytes, 0, MAX_BYTES),
        "workspace_bytes": (graph.workspace_bytes, 0, MAX_BYTES),
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
    inputs = np.append(np.sort(graph.edge_data * graph.num_ops + graph.edge_dst), NONE)
    keys = graph.output_alias[aliases] * graph.num_ops + graph.output_op[aliases]
    missing = inputs[np.searchsorted(inputs[:-1], keys)] != keys
    if (bad := _first(missing)) is not None:
        output = int(aliases[bad])
        source = int(graph.output_alias[output])
        where = [int(graph.output_op[source]), int(source - graph.output_ptr[graph.output_op[source]])]
        raise GraphError(f"{place(output)}.alias_of: {where} is not a data input of the op")


def _check_edges(graph: ComputationGraph) -> None:
    num_outputs = np.diff(graph.output_ptr)[graph.edge_src]
    if (bad := _first((graph.edge_output < CONTROL) | (graph.edge_output >= num_outputs))) is not None:
        edge = [int(column[bad]) for column in (graph.edge_src, graph.edge_output, graph.edge_dst)]
        raise GraphError(
            f"edge {edge}: op {edge[0]} has {num_outputs[bad]} outputs, so output {edge[1]} does not exist"
        )


def columns(ops: Sequence[Op], edges: Iterable[tuple[int, int, int]]) -> dict[str, Any]:
    """The columns of a ComputationGraph by name, from op records and edges `(source op, output, destination op)`.

    Raises GraphError.
    """
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
            raise GraphError(
                f"edges[{edge}]: {table[edge].tolist()} names op {table[edge, column]}, but there are {num_ops} ops"
            )
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
