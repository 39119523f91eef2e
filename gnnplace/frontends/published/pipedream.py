"""Reads profiles of PipeDream.

Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019. A profile is text with one
line for each node:

    node1 -- Conv2d(3, 64) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=4096.0,
    parameter_size=7168.000

and one line, after a tab, for each edge: `node1 -- node2`. Times are milliseconds on the profiled accelerator, so each
op has a time on devices of kind gpu only and has to be placed there. Sizes are bytes. `activation_size` may be a list,
`[1.0; 2.0]`, which counts as its sum. A node without any time launches no kernel. A `-- stage_id=3` at the end of a
node's line, a placement of that node, is ignored.

For inference, a node is one op, which holds its parameters. For training, a second op is its backward pass, colocated
with the parameters. It reads the node's activations, those of its predecessors and the gradients from its successors.
It gives each predecessor a gradient of the size of that node's activations. The profile has no optimiser, so there is
no update.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Literal

from gnnplace.formats.strict_json import Source, shown
from gnnplace.graph import MAX_BYTES, MAX_EDGES, MAX_OPS, MAX_TIME_NS, ComputationGraph, Op, Output
from gnnplace.isolation import regular_file

MAX_DOCUMENT_BYTES = 2**28
MAX_LINE = 100_000
NS_PER_MS = 10**6

_NUMBER = r"[0-9.eE+-]{1,40}"
_NODE = re.compile(
    rf"(?P<name>\S+) -- (?P<what>.+) -- forward_compute_time=(?P<forward>{_NUMBER}), "
    rf"backward_compute_time=(?P<backward>{_NUMBER}), "
    rf"activation_size=(?P<activation>{_NUMBER}|\[{_NUMBER}(?:; {_NUMBER})*\]), parameter_size=(?P<parameter>{_NUMBER})"
    r"(?: -- stage_id=[0-9]{1,9})?"
)
_EDGE = re.compile(r"(?P<source>\S+) -- (?P<target>\S+)")


@dataclass(frozen=True)
class _Node:
    """One node of a profile."""

    name: str
    kind: str
    forward_ns: int
    backward_ns: int
    activation_bytes: int
    parameter_bytes: int


def read_pipedream(source: Source, *, name: str, mode: Literal["training", "inference"]) -> ComputationGraph:
    """The graph of a profile, a file (a path) or its bytes, named `name`, for one training step or one inference.

    Raises ValueError (one line) for invalid content, OSError for an unreadable file.
    """
    if isinstance(source, bytes):
        return _graph(source, name, mode)
    try:
        return _graph(regular_file.read(os.fspath(source), MAX_DOCUMENT_BYTES), name, mode)
    except ValueError as error:
        raise ValueError(f"{os.fspath(source)}: {error}") from error


def _graph(data: bytes, name: str, mode: Literal["training", "inference"]) -> ComputationGraph:
    nodes, edges = _parsed(data)
    ops = [_forward(node) for node in nodes]
    if mode == "inference":
        return ComputationGraph.from_ops(name, ops, [(source, 0, target) for source, target in edges])
    predecessors: list[list[int]] = [[] for _ in nodes]
    for source, target in edges:
        predecessors[target].append(source)
    ops += [
        _backward(node, [nodes[source] for source in sources])
        for node, sources in zip(nodes, predecessors, strict=True)
    ]
    op_edges = [(source, 0, target) for source, target in edges]
    for node, sources in enumerate(predecessors):
        backward = len(nodes) + node
        op_edges += [(source, 0, backward) for source in (node, *sources)]
        op_edges += [(backward, output, len(nodes) + source) for output, source in enumerate(sources)]
    return ComputationGraph.from_ops(name, ops, op_edges)


def _forward(node: _Node) -> Op:
    return Op(
        node.name, node.kind, (Output(node.activation_bytes),), kernel=node.forward_ns > 0,
        time_ns={"gpu": node.forward_ns},
        persistent_bytes=node.parameter_bytes, colocation=node.name, phase="forward", canonical_kind="other",
    )  # fmt: skip


def _backward(node: _Node, sources: list[_Node]) -> Op:
    return Op(
        f"{node.name}/backward", f"{node.kind}/backward", tuple(Output(source.activation_bytes) for source in sources),
        kernel=node.backward_ns > 0, time_ns={"gpu": node.backward_ns}, colocation=node.name, phase="backward_data",
        canonical_kind="other",
    )  # fmt: skip


def _parsed(data: bytes) -> tuple[list[_Node], list[tuple[int, int]]]:
    """The nodes in order, and the distinct edges between them. Raises ValueError with the line."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"longer than the {MAX_DOCUMENT_BYTES} bytes that a profile may have")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start}: not UTF-8") from None
    nodes: dict[str, _Node] = {}
    edges: dict[tuple[str, str], int] = {}
    for number, line in enumerate(map(str.rstrip, lines), 1):
        if line.startswith("\t"):
            edges.setdefault(_edge(line[1:], number), number)
        elif line:
            node = _node(line, number)
            if node.name in nodes:
                raise ValueError(f"line {number}: node {shown(node.name)} is not unique")
            nodes[node.name] = node
        if len(nodes) > MAX_OPS // 2 or len(edges) > MAX_EDGES // 4:
            raise ValueError(f"line {number}: more than {MAX_OPS // 2} nodes or {MAX_EDGES // 4} edges")
    op_of = {name: index for index, name in enumerate(nodes)}
    for ends, number in edges.items():
        for end in ends:
            if end not in op_of:
                raise ValueError(f"line {number}: {shown(end)} is no node of the profile")
    return list(nodes.values()), [(op_of[source], op_of[target]) for source, target in edges]


def _edge(text: str, number: int) -> tuple[str, str]:
    match = _EDGE.fullmatch(text)
    if match is None:
        raise ValueError(f"line {number}: {shown(text)}: expected an edge, a tab and `node1 -- node2`")
    return match["source"], match["target"]


def _node(text: str, number: int) -> _Node:
    match = _NODE.fullmatch(text) if len(text) <= MAX_LINE else None
    if match is None:
        expected = (
            "`name -- layer -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=4.0, "
            "parameter_size=8.0`"
        )
        raise ValueError(f"line {number}: {shown(text)}: expected a node, {expected}")
    sizes = match["activation"].strip("[]").split("; ")
    return _Node(
        match["name"],
        match["what"].partition("(")[0].strip() or match["what"],
        _amount("forward_compute_time", match["forward"], NS_PER_MS, MAX_TIME_NS, number),
        _amount("backward_compute_time", match["backward"], NS_PER_MS, MAX_TIME_NS, number),
        sum(_amount("activation_size", size, 1, MAX_BYTES // len(sizes), number) for size in sizes),
        _amount("parameter_size", match["parameter"], 1, MAX_BYTES, number),
    )


def _amount(what: str, text: str, unit: int, most: int, number: int) -> int:
    """A number in line `number` of the profile, times `unit`, as an integer."""
    try:
        value = float(text) * unit
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise ValueError(f"line {number}: {what}: {shown(text)} is no number from 0 to {most // unit}")
    return round(value)
