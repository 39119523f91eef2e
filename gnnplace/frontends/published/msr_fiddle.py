"""Reads the JSON graphs of github.com/msr-fiddle/dnn-partitioning.

Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020.

A node becomes an op with its measured times: `cpuLatency` on devices of kind cpu, `fpgaLatency` (of the accelerator) on
devices of kind gpu, if the node is supported there. Both are milliseconds; a node without times launches no kernel.
`size` stays on the node's device for the whole step, so it is persistent memory. An edge carries `size` bytes; edges of
one size from one node are one output, which is sent once to each device. Nodes of a colour class share a device;
`layerId` is the block; `isBackwardNode` is the phase.

Ignored, since a cluster describes it: the number and memory of devices, and `cost`, the transfer time of an edge.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import FailFast, Field, Strict

from gnnplace.formats import strict_json
from gnnplace.formats.strict_json import Document, Source
from gnnplace.graph import MAX_BYTES, MAX_EDGES, MAX_OPS, MAX_TIME_NS, ComputationGraph, Op, Output

MAX_DOCUMENT_BYTES = 2**28
NS_PER_MS = 10**6

Identity = Annotated[int, Field(ge=0, lt=2**63)]
Flag = Annotated[bool, Strict()] | Literal[0, 1]
Milliseconds = Annotated[float, Field(ge=0, le=MAX_TIME_NS // NS_PER_MS)]
Bytes = Annotated[float, Field(ge=0, le=MAX_BYTES)]
Amount = Annotated[float, Field(ge=0)]


class FiddleNode(Document):
    """One node of a document."""

    id: Identity
    name: Annotated[str, Field(min_length=1, max_length=10_000)]
    supportedOnFpga: Flag
    cpuLatency: Milliseconds
    fpgaLatency: Milliseconds
    isBackwardNode: Flag = False
    colorClass: Identity | None = None
    layerId: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    size: Bytes


class Edge(Document):
    """One edge of a document."""

    sourceId: Identity
    destId: Identity
    cost: Amount
    size: Bytes


class Partitioning(Document):
    """A document: a graph and its machine."""

    maxSizePerFPGA: Amount
    maxFPGAs: Identity
    maxCPUs: Identity
    nodes: Annotated[list[FiddleNode], Field(min_length=1, max_length=MAX_OPS), FailFast()]
    edges: Annotated[list[Edge], Field(max_length=MAX_EDGES), FailFast()]


def read_msr_fiddle(source: Source, *, name: str) -> ComputationGraph:
    """The graph in a file (a path) or its bytes, named `name`.

    Raises ValueError (one line) for invalid content, OSError for an unreadable file.
    """
    return strict_json.read(source, Partitioning, lambda document: _graph(document, name), MAX_DOCUMENT_BYTES)


def _graph(document: Partitioning, name: str) -> ComputationGraph:
    op_of = _op_of(document.nodes)
    outputs: list[dict[int, int]] = [{} for _ in document.nodes]  # bytes -> output
    edges = []
    for index, edge in enumerate(document.edges):
        for end, node in (("sourceId", edge.sourceId), ("destId", edge.destId)):
            if node not in op_of:
                raise ValueError(f"edges[{index}].{end}: no node has the id {node}")
        source = op_of[edge.sourceId]
        output = outputs[source].setdefault(round(edge.size), len(outputs[source]))
        edges.append((source, output, op_of[edge.destId]))
    members = Counter(node.colorClass for node in document.nodes)
    ops = [_op(node, sizes, members[node.colorClass] > 1) for node, sizes in zip(document.nodes, outputs, strict=True)]
    return ComputationGraph.from_ops(name, ops, edges)


def _op_of(nodes: list[FiddleNode]) -> dict[int, int]:
    """The op of each node, by the node's id. Raises ValueError for a repeated id or name."""
    op_of: dict[int, int] = {}
    names: set[str] = set()
    for index, node in enumerate(nodes):
        if node.id in op_of:
            raise ValueError(f"nodes[{index}].id: {node.id} is not unique; nodes[{op_of[node.id]}] has it, too")
        if node.name in names:
            raise ValueError(f"nodes[{index}].name: {strict_json.shown(node.name)} is not unique")
        op_of[node.id] = index
        names.add(node.name)
    return op_of


def _op(node: FiddleNode, sizes: dict[int, int], shares: bool) -> Op:
    times = {"cpu": round(node.cpuLatency * NS_PER_MS)}
    if node.supportedOnFpga:
        times["gpu"] = round(node.fpgaLatency * NS_PER_MS)
    return Op(
        node.name, "node", tuple(Output(size) for size in sizes), kernel=any(times.values()), time_ns=times,
        persistent_bytes=round(node.size),
        colocation=f"color {node.colorClass}" if shares and node.colorClass is not None else None,
        phase="backward_data" if node.isBackwardNode else "forward", block=node.layerId, canonical_kind="other",
    )  # fmt: skip
