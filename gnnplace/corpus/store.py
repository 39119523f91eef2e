"""The compact file of a graph: a zstd-compressed Arrow IPC table with one row and a list for each column of the graph.

The loaded graph equals the saved one (the same `graph.sha256`). A file is refused if it is not such a table, if its
columns don't fit each other (which ComputationGraph takes for granted), or if it breaks a rule of ComputationGraph.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gnnplace.formats import atomic
from gnnplace.graph import COLUMNS, CONTROL, NONE, Categorical, ComputationGraph

FORMAT, VERSION = "gnnplace.graph.arrow", "1"
MAX_FILE_BYTES = 2**30
COMPRESSION_LEVEL = 15

_CATEGORICAL = ("kind", "canonical_kind", "phase", "layer", "colocation", "allowed", "output_dtype")
_STRINGS = ("op_names", "given_keys")
_OP_COLUMNS = (
    "kind", "canonical_kind", "phase", "layer", "colocation", "allowed",
    "flops", "bytes_accessed", "persistent_bytes", "workspace_bytes", "kernel", "block", "time_step",
)  # fmt: skip
_OUTPUT_COLUMNS = ("output_bytes", "output_dtype", "output_rank", "output_alias", "output_is_result")
_ELEMENTS = {
    "kernel": pa.bool_(), "output_is_result": pa.bool_(),
    "block": pa.int32(), "time_step": pa.int32(), "output_rank": pa.int32(),
    "edge_src": pa.int32(), "edge_output": pa.int32(), "edge_dst": pa.int32(),
}  # fmt: skip


def save(graph: ComputationGraph, path: str | os.PathLike[str]) -> None:
    """Writes the graph to `path` atomically.

    Raises ValueError for a step of several micro-batches, OSError if the file can't be written.
    """
    atomic.write_bytes(path, packed(graph))


def load(path: str | os.PathLike[str]) -> ComputationGraph:
    """The graph in `path`.

    Raises ValueError (one line: path, value, rule) for an invalid file, OSError for an unreadable one.
    """
    data = _read(Path(path))
    try:
        return unpacked(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def packed(graph: ComputationGraph) -> bytes:
    """The content of a graph's file. Raises ValueError for a step of several micro-batches, whose copies it lacks."""
    graph.check_one("the file of a graph")
    schema = _schema().with_metadata({"format": FORMAT, "version": VERSION, "name": graph.name})
    columns = [pa.array([part], type=schema.field(column).type) for column, part in _parts(graph)]
    batch = pa.record_batch(columns, schema=schema)
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=COMPRESSION_LEVEL))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def unpacked(data: bytes) -> ComputationGraph:
    """The graph in the content of a file. Raises ValueError (one line: value, rule) for an invalid one."""
    try:
        batch = _batch(data)
        columns = _columns(batch)
        _check(columns)
        return ComputationGraph(name=_metadata(batch.schema)["name"], **columns)
    except pa.ArrowException as error:
        raise ValueError(f"not a readable Arrow file: {' '.join(str(error).split())}") from error


def _element(column: str) -> pa.DataType:
    return _ELEMENTS.get(column, pa.int64())


def _schema() -> pa.Schema:
    """Every column but the name, in the graph's order; a categorical column takes two columns of the table."""
    columns: list[tuple[str, pa.DataType]] = []
    for column in COLUMNS:
        if column in _CATEGORICAL:
            columns += [
                (f"{column}.values", pa.large_list(pa.string())),
                (f"{column}.index", pa.large_list(pa.int32())),
            ]
        else:
            columns.append((column, pa.large_list(pa.string() if column in _STRINGS else _element(column))))
    return pa.schema(columns)


def _parts(graph: ComputationGraph) -> Iterator[tuple[str, np.ndarray | list[str]]]:
    for column in COLUMNS:
        value = getattr(graph, column)
        if isinstance(value, Categorical):
            yield f"{column}.values", list(value.values)
            yield f"{column}.index", value.index
        else:
            yield column, value.ravel() if isinstance(value, np.ndarray) else list(value)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path}: longer than the {MAX_FILE_BYTES} bytes that a graph file may have")
        return file.read(MAX_FILE_BYTES)


def _batch(data: bytes) -> pa.RecordBatch:
    try:
        reader = pa.ipc.open_file(pa.BufferReader(data))
        _check_header(reader)
        batch = reader.get_batch(0)
    except OSError as error:  # Arrow's word for a damaged buffer
        raise ValueError(f"not a readable Arrow file: {error}") from error
    batch.validate(full=True)
    if batch.num_rows != 1 or any(column.null_count or column.values.null_count for column in batch.columns):
        raise ValueError(f"{batch.num_rows} rows; a graph is one row without nulls")
    return batch


def _check_header(reader: pa.ipc.RecordBatchFileReader) -> None:
    metadata = _metadata(reader.schema)
    for key, expected in (("format", FORMAT), ("version", VERSION)):
        if metadata.get(key) != expected:
            raise ValueError(f"{key}: {metadata.get(key)!r} is not {expected!r}")
    if set(metadata) != {"format", "version", "name"}:
        raise ValueError(f"metadata: {', '.join(sorted(metadata))} are not format, version and name")
    if not reader.schema.remove_metadata().equals(_schema()):
        raise ValueError("schema: the columns are not those of a graph")
    if reader.num_record_batches != 1:
        raise ValueError(f"{reader.num_record_batches} record batches; a graph is one")


def _metadata(schema: pa.Schema) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}


def _columns(batch: pa.RecordBatch) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        if column in _CATEGORICAL:
            columns[column] = Categorical(_strings(batch, f"{column}.values"), _numbers(batch, f"{column}.index"))
        else:
            columns[column] = _strings(batch, column) if column in _STRINGS else _numbers(batch, column)
    ops, keys = len(columns["op_names"]), len(columns["given_keys"])
    given = columns["given_time_ns"]
    if given.size != ops * keys:
        raise ValueError(f"given_time_ns: {given.size} values for {ops} ops and {keys} keys")
    columns["given_time_ns"] = given.reshape(ops, keys)
    return columns


def _strings(batch: pa.RecordBatch, column: str) -> tuple[str, ...]:
    return tuple(batch.column(column).values.to_pylist())


def _numbers(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """The numbers in a column's buffer. Arrow's own `to_numpy` would import pandas, which takes a quarter second."""
    values = batch.column(column).values
    rows, data = slice(values.offset, values.offset + len(values)), values.buffers()[1] or b""
    if pa.types.is_boolean(values.type):
        return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[rows].astype(bool)
    return np.frombuffer(data, np.dtype(str(values.type)))[rows]


def _check(columns: Mapping[str, Any]) -> None:
    """Raises ValueError (one line: column, value, rule) if the columns of a graph don't fit each other."""
    ops, outputs, edges = len(columns["op_names"]), len(columns["output_bytes"]), len(columns["edge_src"])
    _check_lengths(columns, dict.fromkeys(_OP_COLUMNS, ops) | dict.fromkeys(_OUTPUT_COLUMNS, outputs))
    _check_lengths(columns, {"output_ptr": ops + 1, "edge_output": edges, "edge_dst": edges})
    _check_pointers(columns, outputs)
    for column, value in columns.items():
        if isinstance(value, Categorical):
            _check_range(f"{column}.index", value.index, NONE, len(value.values) - 1)
            if len(set(value.values)) < len(value.values):
                raise ValueError(f"{column}.values: the strings are not distinct")
    _check_range("kind.index", columns["kind"].index, 0, len(columns["kind"].values) - 1)
    _check_range("output_alias", columns["output_alias"], NONE, outputs - 1)
    _check_range("edge_src", columns["edge_src"], 0, ops - 1)
    _check_range("edge_dst", columns["edge_dst"], 0, ops - 1)
    _check_sorted(columns)


def _check_lengths(columns: Mapping[str, Any], expected: Mapping[str, int]) -> None:
    for column, expected_length in expected.items():
        value = columns[column]
        length = len(value.index if isinstance(value, Categorical) else value)
        if length != expected_length:
            raise ValueError(f"{column}: {length} entries where {expected_length} are due")


def _check_pointers(columns: Mapping[str, Any], outputs: int) -> None:
    pointers, rank = columns["output_ptr"], columns["output_rank"]
    if pointers[0] != 0 or pointers[-1] != outputs or (np.diff(pointers) < 0).any():
        raise ValueError(f"output_ptr: does not rise from 0 to {outputs}, the number of outputs")
    _check_range("output_rank", rank, NONE, len(columns["output_dims"]))
    if np.maximum(rank, 0).sum() != len(columns["output_dims"]):
        raise ValueError(
            f"output_dims: {len(columns['output_dims'])} entries where {np.maximum(rank, 0).sum()} are due"
        )


def _check_range(column: str, values: np.ndarray, low: int, high: int) -> None:
    outside = (values < low) | (values > high)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(f"{column}[{row}]: {values[row]} is not between {low} and {high}")


def _check_sorted(columns: Mapping[str, Any]) -> None:
    """Raises ValueError unless edges are sorted and distinct."""
    _check_range("edge_output", columns["edge_output"], CONTROL, len(columns["output_bytes"]))
    order = np.lexsort((columns["edge_dst"], columns["edge_output"], columns["edge_src"]))
    table = np.stack([columns["edge_src"], columns["edge_output"], columns["edge_dst"]], axis=1)
    if (order[1:] < order[:-1]).any() or (table[1:] == table[:-1]).all(axis=1).any():
        raise ValueError("edges: not sorted and distinct")
