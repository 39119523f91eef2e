"""Graphs as JSON documents: `gnnplace.graph` version 1 (docs/formats.md#graph)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import FailFast, Field, Strict

from gnnplace.formats import strict_json
from gnnplace.formats.strict_json import Document, Source
from gnnplace.graph import (
    CANONICAL_KINDS,
    CONTROL,
    MAX_BYTES,
    MAX_EDGES,
    MAX_FLOPS,
    MAX_OPS,
    MAX_OUTPUTS,
    MAX_TIME_NS,
    NONE,
    PHASES,
    ComputationGraph,
    Op,
    Output,
)

MAX_DOCUMENT_BYTES = 2**30

Text = Annotated[str, Field(min_length=1, max_length=10_000)]
DeviceKind = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^,]+$")]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]
TimeNs = Annotated[int, Field(ge=0, le=MAX_TIME_NS)]
OpIndex = Annotated[int, Field(ge=0, lt=MAX_OPS)]
OutputIndex = Annotated[int, Field(ge=0, lt=MAX_OUTPUTS)]
Edge = Annotated[tuple[OpIndex, Annotated[int, Field(ge=CONTROL, lt=MAX_OUTPUTS)], OpIndex], Strict(False)]
Number = Annotated[int, Field(ge=0, lt=2**31)]
Phase = Annotated[str, Field(json_schema_extra={"enum": list(PHASES)})]  # ComputationGraph refuses other words
CanonicalKind = Annotated[str, Field(json_schema_extra={"enum": list(CANONICAL_KINDS)})]


class OutputDocument(Document):
    """One output of an op."""

    bytes: Bytes
    shape: Annotated[list[Annotated[int, Field(ge=0, le=MAX_BYTES)]], Field(max_length=256)] | None = None
    dtype: Text | None = None
    alias_of: Annotated[tuple[OpIndex, OutputIndex], Strict(False)] | None = None
    is_result: bool = False


class OpDocument(Document):
    """One op of a graph document."""

    name: Text
    kind: Text
    outputs: Annotated[list[OutputDocument], Field(max_length=MAX_OUTPUTS)]
    flops: Annotated[int, Field(ge=0, le=MAX_FLOPS)] = 0
    bytes_accessed: Bytes | None = None
    persistent_bytes: Bytes = 0
    workspace_bytes: Bytes = 0
    kernel: bool = True
    time_ns: Annotated[dict[Text, TimeNs], Field(max_length=1024)] = Field(default_factory=dict)
    allowed: Annotated[list[DeviceKind], Field(min_length=1, max_length=1024)] | None = None
    colocation: Text | None = None
    layer: Text | None = None
    phase: Phase | None = None
    block: Number | None = None
    time_step: Number | None = None
    canonical_kind: CanonicalKind | None = None


class GraphDocument(Document):
    """A graph document. An edge is `[source op, output index or -1 for control, destination op]`."""

    format: Literal["gnnplace.graph"] = "gnnplace.graph"
    version: Literal[1] = 1
    name: Text
    ops: Annotated[list[OpDocument], Field(min_length=1, max_length=MAX_OPS), FailFast()]
    edges: Annotated[list[Edge], Field(max_length=MAX_EDGES), FailFast()]


def read_graph(source: Source) -> ComputationGraph:
    """The graph of a JSON file (a path) or of its bytes.

    Raises ValueError (one line) for an invalid document, OSError for an unreadable file.
    """
    return strict_json.read(source, GraphDocument, _graph, MAX_DOCUMENT_BYTES)


def graph_of(document: dict[str, Any]) -> ComputationGraph:
    """The graph of a parsed document. Raises ValueError (one line) for an invalid one."""
    return _graph(strict_json.check(document, GraphDocument))


def graph_document(graph: ComputationGraph) -> dict[str, Any]:
    """The document of a graph, without absent values and defaults; reading it gives a graph of the same content."""
    edges = np.stack([graph.edge_src, graph.edge_output, graph.edge_dst], axis=1).tolist()
    ops = [op_fields(graph, op) for op in range(graph.num_ops)]
    return {"format": "gnnplace.graph", "version": 1, "name": graph.name, "ops": ops, "edges": edges}


def op_fields(graph: ComputationGraph, op: int) -> dict[str, Any]:
    """The fields of one op in a graph's document."""
    allowed = graph.allowed[op]
    times = zip(graph.given_keys, graph.given_time_ns[op].tolist(), strict=True)
    optional = {
        "flops": int(graph.flops[op]) or None,
        "bytes_accessed": _present(graph.bytes_accessed[op]),
        "persistent_bytes": int(graph.persistent_bytes[op]) or None,
        "workspace_bytes": int(graph.workspace_bytes[op]) or None,
        "kernel": None if graph.kernel[op] else False,
        "time_ns": {key: time for key, time in times if time != NONE} or None,
        "allowed": None if allowed is None else allowed.split(","),
        "colocation": graph.colocation[op],
        "layer": graph.layer[op],
        "phase": graph.phase[op],
        "block": _present(graph.block[op]),
        "time_step": _present(graph.time_step[op]),
        "canonical_kind": graph.canonical_kind[op],
    }
    outputs = [
        _output_fields(graph, output) for output in range(int(graph.output_ptr[op]), int(graph.output_ptr[op + 1]))
    ]
    required = {"name": graph.op_names[op], "kind": graph.kind[op], "outputs": outputs}
    return required | {key: value for key, value in optional.items() if value is not None}


def _output_fields(graph: ComputationGraph, output: int) -> dict[str, Any]:
    shape, alias = graph.shape(output), int(graph.output_alias[output])
    optional = {
        "shape": None if shape is None else list(shape),
        "dtype": graph.output_dtype[output],
        "alias_of": None
        if alias == NONE
        else [int(graph.output_op[alias]), alias - int(graph.output_ptr[graph.output_op[alias]])],
        "is_result": bool(graph.output_is_result[output]) or None,
    }
    return {"bytes": int(graph.output_bytes[output])} | {
        key: value for key, value in optional.items() if value is not None
    }


def _present(number: np.integer) -> int | None:
    return None if number == NONE else int(number)


def _graph(document: GraphDocument) -> ComputationGraph:
    _check_indices(document)
    return ComputationGraph.from_ops(document.name, [_op(op) for op in document.ops], document.edges)


def _check_indices(document: GraphDocument) -> None:
    """Raises ValueError for an edge or alias to an op or output that does not exist.

    ComputationGraph would refuse it as well, but without the place in the document.
    """
    num_outputs = [len(op.outputs) for op in document.ops]
    for index, (src, output, dst) in enumerate(document.edges):
        if max(src, dst) >= len(num_outputs):
            raise ValueError(f"edges[{index}]: op {max(src, dst)} does not exist; there are {len(num_outputs)} ops")
        if output >= num_outputs[src]:
            raise ValueError(
                f"edges[{index}][1]: output {output} does not exist; op {src} has {num_outputs[src]} outputs"
            )
    for index, op in enumerate(document.ops):
        for k, alias in enumerate(output.alias_of for output in op.outputs):
            if alias is not None and (alias[0] >= len(num_outputs) or alias[1] >= num_outputs[alias[0]]):
                raise ValueError(f"ops[{index}].outputs[{k}].alias_of: {list(alias)} is no output of the graph")


def _op(document: OpDocument) -> Op:
    allowed = None if document.allowed is None else tuple(document.allowed)
    return Op(**vars(document) | {"outputs": tuple(_output(output) for output in document.outputs), "allowed": allowed})


def _output(document: OutputDocument) -> Output:
    return Output(**vars(document) | {"shape": None if document.shape is None else tuple(document.shape)})
