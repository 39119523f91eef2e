"""Converts a network read from a file to the computation graph of its forward pass.

Each input, weight and node becomes an op. A weight is a variable with its bytes and one op that reads it, as in the
other front-ends; a large `Constant` node is a weight as well. An initializer with a few whole numbers or a single value
(a shape, an axis, a scale) is a constant. Views share the buffer of their input. Nodes that only look at shapes or fold
small constants run no kernel. Ops with strings are allowed on CPUs only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.network.flops import NodeCall
from gnnplace.frontends.network.network import Names, Network, Node, Tensor, shown
from gnnplace.graph import MAX_FLOPS, ComputationGraph, Op, Output

Ref = tuple[int, int]  # (op, output)
WHOLE_NUMBERS = re.compile(r"u?int\d+|bool")
MAX_FOLDED_ELEMENTS = 16  # the largest output of arithmetic on constants and shapes that the host does once

NEVER_FOLDED = frozenset(("random", "other"))  # their values change with each step, or may
OF_STATE = frozenset(("ReadValue", "Assign"))  # kinds of OpenVINO; the values that they read change with each step


@dataclass(frozen=True)
class Format:
    """The rules of one file format."""

    node: str  # the format's word for a node
    static: frozenset[str]  # the kinds whose output is known before the step
    is_view: Callable[[Node], bool]
    canonical_kind: Callable[[Node, Sequence[int], bool], str]
    """Its arguments: the node, the ranks of its inputs, and whether it gathers rows of a weight."""
    flops: Callable[[NodeCall], int]


def read_graph(file: str | os.PathLike[str], network: Network, rules: Format, name: str | None) -> ComputationGraph:
    """The graph of a file's network, named `name` or after the file.

    Raises ValueError (one line) if a node's inputs or attributes don't fit its kind, or its flops are absurd.
    """
    builder = _Builder(network, rules)
    try:
        builder.add_all()
        return ComputationGraph.from_ops(name or Path(file).stem, builder.ops, builder.edges)
    except ValueError as error:
        raise ValueError(f"{os.fspath(file)}: {error}") from error


class _Builder:
    """Turns inputs, initializers and nodes into ops, in order. `_refs` maps a value to the output that holds it."""

    def __init__(self, network: Network, rules: Format) -> None:
        self.ops: list[Op] = []
        self.edges: set[tuple[int, int, int]] = set()
        self._network, self._rules = network, rules
        self._results = frozenset(network.outputs)
        self._first_user = {name: node for node in reversed(network.nodes) for name in node.inputs}
        self._refs: dict[str, Ref] = {}
        self._static: set[str] = set()  # values that depend on shapes and constants alone
        self._weights: set[str] = set()
        self._names = Names()

    def add_all(self) -> None:
        for name in self._network.inputs:
            self._append(
                name,
                "input",
                (self._output(name, None),),
                (name,),
                layer="inputs",
                kernel=False,
                canonical_kind="input",
            )
        for name in self._network.initializers:
            self._add_initializer(name, self._network.tensors[name])
        for node in self._network.nodes:
            constant = self._network.tensors.get(node.outputs[0]) if node.kind == "Constant" and node.outputs else None
            if constant is not None and constant.elements > MAX_FOLDED_ELEMENTS:
                self._add_initializer(node.outputs[0], constant)
            else:
                self._add_node(node)

    def _add_initializer(self, name: str, tensor: Tensor) -> None:
        user = self._first_user.get(name)
        layer = user.layer if user is not None else None
        if tensor.elements == 1 or (tensor.elements <= MAX_FOLDED_ELEMENTS and WHOLE_NUMBERS.fullmatch(tensor.dtype)):
            self._append(
                name, "Constant", (self._output(name, None),), (name,), layer=layer, kernel=False, canonical_kind="fill"
            )
            self._static.add(name)
            return
        self._weights.add(name)
        columns: dict[str, Any] = {"layer": layer, "kernel": False, "canonical_kind": "variable", "colocation": name}
        resource = Output(0, (), "resource")
        op = self._append(name, "initializer", (resource,), (), persistent_bytes=tensor.bytes, **columns)
        if user is not None or name in self._results:
            self._append(f"{name}/read", "read", (self._output(name, (op, 0)),), (name,), [(op, 0)], **columns)

    def _add_node(self, node: Node) -> None:
        tensors = self._network.tensors
        call = NodeCall(
            node, self._canonical(node), tuple(map(tensors.get, node.inputs)), tuple(map(tensors.get, node.outputs))
        )
        folded, view, static = self._is_folded(call), self._rules.is_view(node), node.kind in self._rules.static
        kernel = not (folded or view or static)
        alias = self._refs[node.inputs[0]] if view else None
        strings = any(tensor is not None and tensor.dtype == "string" for tensor in (*call.inputs, *call.outputs))
        self._append(
            node.name or next(iter(filter(None, node.outputs)), node.kind), node.kind,
            tuple(self._output(name, alias if index == 0 else None) for index, name in enumerate(node.outputs)),
            node.outputs, [self._refs[name] for name in node.inputs if name],
            **self._costs(call, folded), kernel=kernel, layer=node.layer,
            canonical_kind="shape" if folded else call.canonical, allowed=("cpu",) if strings else None,
        )  # fmt: skip
        if folded or static:
            self._static.update(node.outputs)

    def _is_folded(self, call: NodeCall) -> bool:
        """Whether a node computes a small value from shapes and constants alone, which the host does once."""
        inputs, tensors = [name for name in call.node.inputs if name], self._network.tensors
        small = all(
            name in tensors and tensors[name].elements <= MAX_FOLDED_ELEMENTS for name in call.node.outputs if name
        )
        steady = call.canonical not in NEVER_FOLDED and call.node.kind not in OF_STATE
        return bool(inputs) and small and self._static.issuperset(inputs) and steady

    def _canonical(self, node: Node) -> str:
        ranks = [len(self._network.tensors[name].shape) if name else 0 for name in node.inputs]
        return self._rules.canonical_kind(node, ranks, self._looks_up(node))

    def _looks_up(self, node: Node) -> bool:
        """Whether a node gathers rows of a weight."""
        if (
            node.kind != "Gather"
            or len(node.inputs) < 2
            or node.inputs[0] not in self._weights
            or node.attributes.get("axis", 0) != 0
        ):
            return False
        table, indices, rows = (self._network.tensors.get(name) for name in (*node.inputs[:2], node.outputs[0]))
        return table is not None and indices is not None and len(table.shape) == 2 and rows is not None \
            and rows.shape == indices.shape + table.shape[1:]  # fmt: skip

    def _costs(self, call: NodeCall, folded: bool) -> dict[str, Any]:
        """The flops and bytes of a node; a folded one has no flops."""
        try:
            flops = 0 if folded else self._rules.flops(call)
            bytes_accessed, workspace = network_flops.bytes_accessed(call), network_flops.workspace_bytes(call)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._described(call.node)}: its inputs or attributes are not those of this kind"
            ) from error
        if not 0 <= flops <= MAX_FLOPS:
            raise ValueError(f"{self._described(call.node)}: {flops} flops are not between 0 and {MAX_FLOPS}")
        return {"flops": flops, "bytes_accessed": bytes_accessed, "workspace_bytes": workspace}

    def _described(self, node: Node) -> str:
        return f"{self._rules.node} {shown(node.name or next(filter(None, node.outputs), ''))} ({node.kind})"

    def _output(self, name: str, alias_of: Ref | None) -> Output:
        tensor = self._network.tensors.get(name)
        if tensor is None:
            return Output(0)
        return Output(tensor.bytes, tensor.shape, tensor.dtype, alias_of, is_result=name in self._results)

    def _append(
        self, name: str, kind: str, outputs: tuple[Output, ...], values: tuple[str, ...], inputs: Sequence[Ref] = (), *,
        layer: str | None, **columns: Any,
    ) -> int:  # fmt: skip
        """Appends an op whose outputs hold `values`; returns its index."""
        index = len(self.ops)
        self.ops.append(
            Op(self._names.unique(name), kind, outputs, phase="forward", layer=layer, block=_block(layer), **columns)
        )
        self.edges.update([(source, output, index) for source, output in inputs])
        self._refs.update({value: (index, output) for output, value in enumerate(values) if value})
        return index


@lru_cache(maxsize=1000)
def _block(layer: str | None) -> int | None:
    """The number of a repeated block: the first number in a scope."""
    return next((int(part) for part in re.split(r"[/._:-]", layer or "") if part.isdecimal() and len(part) < 10), None)
