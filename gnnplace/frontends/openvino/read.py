"""Reads an OpenVINO model (IR versions 10 and 11) as the graph of a forward pass: one op for each layer, input and
weight.

Only the `.xml` is read, without the package openvino; the weights (the `.bin` beside it) are never opened. `flops`
states the costs, `frontends.network.graph` the ops.

As OpenVINO's runtime does when it compiles a model of full shapes, everything that constants and shapes alone decide is
computed beforehand: its result is a weight (or a small constant) of the network, and the layers on the way are no
nodes. So a weight that is stored as float16 and converted has the size to which it is converted; one that is stored in
8 bits or fewer keeps that size, since the runtime scales it within the layer that uses it (the few scales and zero
points are left out).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from gnnplace.frontends.network.graph import FileGraph, Format, read_graph
from gnnplace.frontends.network.network import BITS, Names, Network, Node, Tensor, checked
from gnnplace.frontends.openvino import flops
from gnnplace.frontends.openvino.flops import CANONICAL, VIEWS, canonical_kind, is_view
from gnnplace.frontends.openvino.wiring import Source, wired
from gnnplace.frontends.openvino.xml import Layer, LayerDocument, Port, read_document

OPENVINO = Format("layer", frozenset(), is_view, canonical_kind, flops.flops)
PRECISIONS = {
    "FP64": "float64", "FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "F8E4M3": "float8_e4m3fn",
    "F8E5M2": "float8_e5m2",
    "F8E8M0": "float8_e8m0", "F4E2M1": "float4_e2m1", "NF4": "nf4", "BOOL": "bool", "STRING": "string",
    **{f"I{bits}": f"int{bits}" for bits in (64, 32, 16, 8, 4)}, **{f"U{bits}": f"uint{bits}" for bits in (64, 32, 16,
    8, 6, 4, 3, 2, 1)},
}  # fmt: skip
NEVER_FOLDED = ("random", "other")
COMPRESSED_BITS = 8


def read_openvino(file: str | os.PathLike[str], name: str | None = None) -> FileGraph:
    """The graph of the `.xml` of an OpenVINO model, named `name` or after the file.

    All dimensions must be fixed (`model.reshape(...)` before the model is saved). Raises ValueError (one line) for a
    dimension without a size, subgraphs (TensorIterator, Loop, If), dangling edges, cycles, absurd sizes, and anything
    that is no IR.
    """
    path = os.fspath(file)
    document = read_document(path)
    try:
        network = network_of(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return read_graph(path, network, OPENVINO, name)


def network_of(document: LayerDocument) -> Network:
    """The network of a parsed file.

    Raises ValueError for what is wired wrongly, dimensions without a size, and absurd sizes.
    """
    builder = _Builder(document)
    builder.add_all()
    return builder.network()


class _Builder:
    """Goes through the layers in topological order; a value is a layer's output, named once it is read."""

    def __init__(self, document: LayerDocument) -> None:
        self._layers = document.layers
        self._sources, self._order = wired(document)
        self._read = {source for sources in self._sources for source in sources}
        self._names = Names()
        self._values: dict[Source, str] = {}
        self._tensors: dict[str, Tensor] = {}
        self._folded: set[str] = set()
        self._inputs: list[str] = []
        self._outputs: dict[str, None] = {}
        self._nodes: list[Node] = []

    def add_all(self) -> None:
        for index in self._order:
            layer, inputs = self._layers[index], tuple(self._values[source] for source in self._sources[index])
            if layer.kind == "Result":
                self._outputs.update(dict.fromkeys(inputs))
                continue
            outputs = self._add_values(index)
            if layer.kind == "Parameter":
                self._inputs += outputs
            elif layer.kind == "Const" or self._folds(layer, inputs):
                self._folded.update(outputs)
                self._keep_compressed(layer, inputs, outputs)
            else:
                self._check_view(layer, inputs, outputs)
                self._nodes.append(
                    Node(self._values[index, 0], layer.kind, _scope(layer.name), inputs, outputs, layer.data)
                )

    def network(self) -> Network:
        used = dict.fromkeys(value for node in self._nodes for value in node.inputs) | self._outputs
        weights = tuple(value for value in used if value in self._folded)
        return Network(tuple(self._inputs), weights, _scoped(self._nodes), tuple(self._outputs), self._tensors)

    def _add_values(self, index: int) -> tuple[str, ...]:
        """The outputs of a layer; "" for one that nobody reads, unless it is the first and none is read."""
        layer = self._layers[index]
        name = self._values[index, 0] = self._names.unique(layer.name or layer.kind)
        values = [""] * len(layer.outputs)
        read = {number for number in range(len(values)) if (index, number) in self._read} or {0}
        for number, port in enumerate(layer.outputs):
            if number in read:
                values[number] = self._values[index, number] = (
                    name if number == 0 else self._names.unique(f"{name}.{number}")
                )
                self._tensors[values[number]] = _tensor(layer, number, port)
        return tuple(values)

    def _folds(self, layer: Layer, inputs: Sequence[str]) -> bool:
        """Whether what a layer yields is known before the step."""
        canonical = CANONICAL.get(layer.kind, "other")
        return canonical == "shape" or (
            bool(inputs) and canonical not in NEVER_FOLDED and self._folded.issuperset(inputs)
        )

    def _keep_compressed(self, layer: Layer, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """What is made of weights that are stored in few bits has their type."""
        stored = [tensor for tensor in map(self._tensors.__getitem__, inputs) if _compressed(tensor)]
        if layer.kind == "ShapeOf" or not stored:
            return
        dtype = max(stored, key=lambda tensor: tensor.elements).dtype
        for value in filter(None, outputs):
            self._tensors[value] = Tensor(self._tensors[value].shape, dtype)

    def _check_view(self, layer: Layer, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        if layer.kind in VIEWS and len(outputs) > 1:
            raise ValueError(f"{layer}: has {len(outputs)} outputs; what it makes is its input in another shape, once")
        if layer.kind in VIEWS and inputs and outputs:
            before, after = self._tensors[inputs[0]], self._tensors[outputs[0]]
            if before.bytes != after.bytes:
                raise ValueError(f"{layer}: makes {str(after)[:100]} of {str(before)[:100]}, which is not as large")


def _tensor(layer: Layer, number: int, port: Port) -> Tensor:
    """The type of an output, where it is full and sane."""
    if any(size < 0 for size in port.dims):
        raise ValueError(_unsized(layer, number, port))
    if layer.kind == "Parameter" and "..." in layer.data.get("shape", ""):
        raise ValueError(f"{layer}: has no fixed rank; {_advice(layer)}")
    place = f"{layer}: its output {number}"
    if port.precision not in PRECISIONS:
        raise ValueError(f"{place}: precision {port.precision[:80]!r} is not known")
    tensor = checked(place, Tensor(tuple(port.dims), PRECISIONS[port.precision]))
    size = layer.data.get("size", "") if layer.kind == "Const" else ""
    if size and tensor.dtype != "string" and size != str(tensor.bytes):
        raise ValueError(f"{layer}: {size[:30]} bytes of data for {str(tensor)[:100]}, which has {tensor.bytes}")
    return tensor


def _unsized(layer: Layer, number: int, port: Port) -> str:
    if layer.kind == "Parameter":
        which = next(index for index, size in enumerate(port.dims) if size < 0)
        return f"{layer}: dimension {which} has no fixed size; {_advice(layer)}"
    sizes = ", ".join("?" if size < 0 else str(size) for size in port.dims)
    return (
        f"{layer}: its output {number} has the shape [{sizes[:100]}], which depends on values; a step's shapes "
        "are known before it"
    )


def _advice(layer: Layer) -> str:
    return (
        f"give it one before the model is saved: model.reshape({{{layer.name[:80]!r}: [...]}}) of the package openvino"
    )


def _compressed(tensor: Tensor) -> bool:
    return BITS[tensor.dtype] <= COMPRESSED_BITS and tensor.dtype != "bool" and tensor.elements > 1


def _scope(name: str) -> str | None:
    """The module or name scope in a layer's name: `__module.encoder.layer.0/aten::add/Add` is in `encoder.layer.0`,
    `a/b/Conv` in `a/b`.
    """
    parts = [part for part in name.split("/")[:-1] if part and "::" not in part]
    return "/".join(parts).removeprefix("__module").lstrip(".") or None


def _scoped(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes; one whose name tells no scope (fused layers have made-up
    names) has that of the first node that reads it and has one.
    """
    scopes: dict[str, str] = {}
    found = []
    for node in reversed(nodes):
        layer = node.layer or next((scopes[value] for value in node.outputs if value in scopes), None)
        if layer is not None:
            scopes.update(dict.fromkeys(node.inputs, layer))
        found.append(replace(node, layer=layer))
    return tuple(reversed(found))
