"""The computation graph of an ONNX file: one op for each node, input and weight, as the network runs forward.

`read_onnx` promises: shapes by ONNX's own inference, in a process that has little time and memory; costs by the rules of `onnx_flops`.
An initializer is a variable with its bytes and one read of it, as in the other front-ends; one that holds a few whole numbers or a
single value (a shape, an axis, a scale) is a constant, as a `Constant` node is. Views share the buffer of their input. What only looks at
shapes or folds small constants has no kernel. Weights are never read, and files beside FILE never opened; training graphs that a file
may have besides are left out. Strings keep their ops on CPUs.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from gnnplace.frontends import onnx_flops
from gnnplace.frontends.onnx_flops import Call
from gnnplace.frontends.onnx_kinds import MAX_FOLDED_ELEMENTS, SHAPE_READERS, canonical_kind, is_view
from gnnplace.frontends.onnx_model import Model, Node, Tensor
from gnnplace.frontends.onnx_reader import read_model
from gnnplace.frontends.strict_json import shown
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.graph_columns import MAX_FLOPS

log = logging.getLogger(__name__)

Ref = tuple[int, int]  # (op, output)
WHOLE_NUMBERS = re.compile(r"u?int\d+|bool")


@dataclass(frozen=True)
class OnnxGraph:
    """The graph of a file, and how many ops of each kind have no rule (bytes alone cost them)."""

    graph: ComputationGraph
    uncounted: Mapping[str, int]


def read_onnx(file: str | os.PathLike[str], dims: Mapping[str, int] | None = None, name: str | None = None) -> OnnxGraph:
    """The graph of an ONNX file, under `name` or the file's own; `dims` are the sizes of its named dimensions (`{"batch": 8}`).

    Raises ValueError, in one line, where the package onnx is missing, a dimension has no size or no value a full shape, and for
    subgraphs (If, Loop, Scan), cycles, names that are missing or made twice, absurd sizes, and whatever is no ONNX.
    """
    model = read_model(file, dims or {})
    builder = _Builder(model)
    try:
        builder.add_all()
    except ValueError as error:
        raise ValueError(f"{os.fspath(file)}: {error}") from error
    graph = ComputationGraph.from_ops(name or Path(file).stem, builder.ops, builder.edges)
    if builder.uncounted:
        log.warning("%s: kinds without a rule, counted by their bytes: %s", graph.name, ", ".join(sorted(builder.uncounted)))
    return OnnxGraph(graph, MappingProxyType(dict(sorted(builder.uncounted.items()))))


class _Builder:
    """Turns inputs, initializers and nodes into ops, in order; `refs` of a value is where it is made."""

    def __init__(self, model: Model) -> None:
        self.ops: list[Op] = []
        self.edges: set[tuple[int, int, int]] = set()
        self.uncounted: Counter[str] = Counter()
        self._model = model
        self._results = frozenset(model.outputs)
        self._first_user = {name: node for node in reversed(model.nodes) for name in node.inputs}
        self._refs: dict[str, Ref] = {}
        self._known: set[str] = set()  # values that shapes and constants alone decide
        self._weights: set[str] = set()
        self._taken: set[str] = set()
        self._repeats: Counter[str] = Counter()

    def add_all(self) -> None:
        for name in self._model.inputs:
            outputs = (self._output(name, None),)
            self._append(Op(name, "input", outputs, kernel=False, canonical_kind="input", layer="inputs"), (name,))
        for name in self._model.initializers:
            self._add_initializer(name, self._model.tensors[name])
        for node in self._model.nodes:
            self._add_node(node)

    def _add_initializer(self, name: str, tensor: Tensor) -> None:
        user = self._first_user.get(name)
        layer = user.layer if user is not None else None
        if tensor.elements == 1 or (tensor.elements <= MAX_FOLDED_ELEMENTS and WHOLE_NUMBERS.fullmatch(tensor.dtype)):
            constant = Op(name, "Constant", (self._output(name, None),), kernel=False, canonical_kind="fill", layer=layer)
            self._append(constant, (name,))
            self._known.add(name)
            return
        self._weights.add(name)
        variable = Op(
            name, "initializer", (Output(0, (), "resource"),), persistent_bytes=tensor.bytes,
            kernel=False, canonical_kind="variable", layer=layer, colocation=name,
        )  # fmt: skip
        op = self._append(variable, ())
        if user is not None or name in self._results:
            outputs = (self._output(name, (op, 0)),)
            read = Op(f"{name}/read", "read", outputs, kernel=False, canonical_kind="variable", layer=layer, colocation=name)
            self._append(read, (name,), [(op, 0)])

    def _add_node(self, node: Node) -> None:
        tensors = self._model.tensors
        folded, view = self._folds(node), is_view(node)
        call = Call(node, self._canonical(node), tuple(map(tensors.get, node.inputs)), tuple(map(tensors.get, node.outputs)))
        kernel = not (folded or view or node.kind == "Constant" or node.kind in SHAPE_READERS)
        if kernel and call.canonical == "other":
            self.uncounted[node.kind] += 1
        alias = self._refs[node.inputs[0]] if view else None
        strings = any(tensor is not None and tensor.dtype == "string" for tensor in (*call.inputs, *call.outputs))
        op = Op(
            node.name or next(iter(filter(None, node.outputs)), node.kind), node.kind,
            tuple(self._output(name, alias if index == 0 else None) for index, name in enumerate(node.outputs)),
            flops=0 if folded else _flops(call), bytes_accessed=onnx_flops.bytes_accessed(call),
            workspace_bytes=onnx_flops.workspace_bytes(call), kernel=kernel, layer=node.layer,
            canonical_kind="shape" if folded else call.canonical, allowed=("cpu",) if strings else None,
        )  # fmt: skip
        self._append(op, node.outputs, [self._refs[name] for name in node.inputs if name])
        if folded or node.kind == "Constant" or node.kind in SHAPE_READERS:
            self._known.update(node.outputs)

    def _folds(self, node: Node) -> bool:
        """Whether a node computes something small from shapes and constants alone: the host does it, once."""
        inputs, tensors = [name for name in node.inputs if name], self._model.tensors
        small = all(name in tensors and tensors[name].elements <= MAX_FOLDED_ELEMENTS for name in node.outputs if name)
        return bool(inputs) and small and self._known.issuperset(inputs) and not node.kind.startswith("Random")

    def _canonical(self, node: Node) -> str:
        table = node.inputs[0] if node.inputs else ""
        looks_up = table in self._weights and node.attributes.get("axis", 0) == 0 and len(self._model.tensors[table].shape) == 2
        ranks = [len(self._model.tensors[name].shape) if name else 0 for name in node.inputs]
        return canonical_kind(node, ranks, looks_up)

    def _output(self, name: str, alias_of: Ref | None) -> Output:
        tensor = self._model.tensors.get(name)
        if tensor is None:
            return Output(0)
        return Output(tensor.bytes, tensor.shape, tensor.dtype, alias_of, is_result=name in self._results)

    def _append(self, op: Op, values: tuple[str, ...], inputs: list[Ref] | None = None) -> int:
        index = len(self.ops)
        self.ops.append(replace(op, name=self._unique(op.name), phase="forward", block=_block(op.layer)))
        self.edges.update((source, output, index) for source, output in inputs or ())
        self._refs.update({value: (index, output) for output, value in enumerate(values) if value})
        return index

    def _unique(self, name: str) -> str:
        """The name; with a number where an op has it already: names of nodes and of values may be the same."""
        free = name
        while free in self._taken:
            self._repeats[name] += 1
            free = f"{name}:{self._repeats[name]}"
        self._taken.add(free)
        return free


def _flops(call: Call) -> int:
    """Raises ValueError where inputs or attributes are not those of the kind."""
    place = f"node {shown(call.node.name or call.node.outputs[0])} ({call.node.kind})"
    try:
        counted = onnx_flops.flops(call)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{place}: its inputs or attributes are not those of this kind") from error
    if not 0 <= counted <= MAX_FLOPS:
        raise ValueError(f"{place}: {counted} flops are not between 0 and {MAX_FLOPS}")
    return counted


def _block(layer: str | None) -> int | None:
    """The first number in a scope: which of the repeated blocks it is."""
    return next((int(part) for part in re.split(r"[/._:-]", layer or "") if part.isdecimal() and len(part) < 10), None)
