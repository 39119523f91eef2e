"""Reads an OpenVINO model (IR versions 10 and 11) as the graph of a forward pass.

Each layer, input and weight becomes an op. Only the `.xml` is read, without the package openvino; the weights (the
`.bin` beside it) are never opened. `flops` has the costs, `frontends.network.graph` makes the ops.

Like OpenVINO's runtime, the reader folds layers that depend on constants and shapes alone: their result is a weight (or
a small constant) of the network, and the layers themselves are no nodes. So a weight that is stored as float16 and
converted has the size of the converted type. A weight that is stored in 8 bits or fewer keeps its size, since the
runtime scales it within the layer that uses it; the few scales and zero points are left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from gnnplace.frontends.network.graph import NEVER_FOLDED, OF_STATE, Format, read_graph
from gnnplace.frontends.network.network import BITS, Names, Network, Node, Tensor, checked
from gnnplace.frontends.openvino import flops
from gnnplace.frontends.openvino.flops import CANONICAL, VIEWS, canonical_kind, is_view
from gnnplace.frontends.openvino.wiring import Source, wired
from gnnplace.frontends.openvino.xml import Layer, LayerDocument, Port, read_document
from gnnplace.graph import ComputationGraph

OPENVINO = Format("layer", frozenset(), is_view, canonical_kind, flops.flops)
PRECISIONS = {
    "FP64": "float64", "FP32": "float32", "FP16": "float16", "BF16": "bfloat16", "F8E4M3": "float8_e4m3fn",
    "F8E5M2": "float8_e5m2", "F8E8M0": "float8_e8m0", "F4E2M1": "float4_e2m1", "NF4": "nf4", "BOOL": "bool",
    "STRING": "string",
    **{f"I{bits}": f"int{bits}" for bits in (64, 32, 16, 8, 4)},
    **{f"U{bits}": f"uint{bits}" for bits in (64, 32, 16, 8, 6, 4, 3, 2, 1)},
}  # fmt: skip
COMPRESSED_BITS = 8


def read_openvino(file: str | os.PathLike[str], name: str | None = None) -> ComputationGraph:
    """The graph of the `.xml` of an OpenVINO model, named `name` or after the file.

    All dimensions must be fixed (`model.reshape(...)` before the model is saved). Raises ValueError (one line) for a
    dimension without a size, subgraphs (TensorIterator, Loop, If), dangling edges, cycles, absurd sizes, and any file
    that is not an IR.
    """
    path = os.fspath(file)
    document = read_document(path)
    try:
        network = network_of(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return read_graph(path, network, OPENVINO, name)


def network_of(document: LayerDocument) -> Network:
    """The network of a parsed file. Raises ValueError for invalid edges, dimensions without a size and absurd sizes."""
    builder = _Builder(document)
    builder.add_all()
    return builder.network()


class _Builder:
    """Converts the layers in topological order. A value is an output of a layer that has a reader."""

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
            elif layer.kind == "Const" or self._is_folded(layer, inputs):
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
        """The values of a layer's outputs; "" for an output without a reader, but the first one if none has any."""
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

    def _is_folded(self, layer: Layer, inputs: Sequence[str]) -> bool:
        """Whether the output of a layer is known before the step."""
        canonical = CANONICAL.get(layer.kind, "other")
        return canonical == "shape" or (
            bool(inputs)
            and canonical not in NEVER_FOLDED
            and layer.kind not in OF_STATE
            and self._folded.issuperset(inputs)
        )

    def _keep_compressed(self, layer: Layer, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Gives values computed from weights that are stored in few bits the type of these weights."""
        stored = [tensor for tensor in map(self._tensors.__getitem__, inputs) if _compressed(tensor)]
        if layer.kind == "ShapeOf" or not stored:
            return
        dtype = max(stored, key=lambda tensor: tensor.elements).dtype
        for value in filter(None, outputs):
            self._tensors[value] = Tensor(self._tensors[value].shape, dtype)

    def _check_view(self, layer: Layer, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        if layer.kind in VIEWS and len(outputs) > 1:
            raise ValueError(f"{layer}: has {len(outputs)} outputs; a view has one, its input in another shape")
        if layer.kind in VIEWS and inputs and outputs:
            before, after = self._tensors[inputs[0]], self._tensors[outputs[0]]
            if before.bytes != after.bytes:
                raise ValueError(f"{layer}: makes {str(after)[:100]} of {str(before)[:100]}, which is not as large")


def _tensor(layer: Layer, number: int, port: Port) -> Tensor:
    """The type of an output. Raises ValueError for a dimension without a size, an unknown type or an absurd size."""
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
    """The message about an output with a dimension without a size."""
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
    """The module or name scope in a layer's name.

    `__module.encoder.layer.0/aten::add/Add` is in `encoder.layer.0`, `a/b/Conv` in `a/b`.
    """
    parts = [part for part in name.split("/")[:-1] if part and "::" not in part]
    return "/".join(parts).removeprefix("__module").lstrip(".") or None


def _scoped(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, each with a scope if possible.

    A node without a scope in its name (fused layers have generated names) gets that of the first reader with one.
    """
    scopes: dict[str, str] = {}
    scoped = []
    for node in reversed(nodes):
        layer = node.layer or next((scopes[value] for value in node.outputs if value in scopes), None)
        if layer is not None:
            scopes.update(dict.fromkeys(node.inputs, layer))
        scoped.append(replace(node, layer=layer))
    return tuple(reversed(scoped))
