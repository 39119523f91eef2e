"""The types of all values of an ONNX graph: symbolic dimensions get sizes, functions are inlined, shapes are inferred.

Shape inference never reads weights: a large or external initializer is declared by its dimensions alone. It reads small
initializers (shapes, axes, scales). `resolving` continues where ONNX's own inference stops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import onnx
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    inliner,
    shape_inference,
)

from gnnplace.frontends.network.network import Tensor, shown
from gnnplace.frontends.onnx.checks import check_graph, check_model, described, tensor_of
from gnnplace.frontends.onnx.folding import is_full, sizes
from gnnplace.frontends.onnx.resolving import needs_resolving, resolved
from gnnplace.frontends.onnx.subgraphs import hoist

KEPT_ELEMENTS = 1024  # smaller initializers keep their data for shape inference
LEAST_IR_VERSION = 4  # the first in which initializers need not be inputs
MOST_NAMED = 10


class Typed(NamedTuple):
    """A flat graph: its nodes, the names of its inputs, initializers and outputs, and the types of its values."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    initializers: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: dict[str, Tensor]


def typed(model: ModelProto, dims: Mapping[str, int]) -> Typed:
    """The graph of a model with the types of all values; `dims` gives sizes of symbolic dimensions. Changes `model`.

    Raises ValueError if `checks` refuses the model, for a dimension without a size, an unused size, a value that is not
    a tensor, and a shape that can't be inferred.
    """
    check_model(model)
    if model.functions:
        model = inliner.inline_local_functions(model)
    graph = model.graph
    check_graph(graph)
    hoisted = hoist(model) if any(map(needs_resolving, graph.node)) else ()
    weights = {
        tensor.name: tensor_of(shown(tensor.name), tensor.data_type, tensor.dims) for tensor in graph.initializer
    }
    inputs = [value for value in graph.input if value.name not in weights]
    outputs = [value.name for value in graph.output]
    _size_dims(inputs, [*graph.output, *graph.value_info], dims)
    _declare_weights(graph, inputs, weights)
    model.ir_version = max(model.ir_version, LEAST_IR_VERSION)
    tensors = weights | _tensors(model, inputs, resolved(model, outputs))
    used = {name for node in graph.node for name in node.input} | {*outputs}
    kept = tuple(name for name in weights if name in used or name not in hoisted)
    inputs_ = tuple(value.name for value in inputs)
    return Typed(tuple(graph.node), inputs_, kept, tuple(dict.fromkeys(outputs)), tensors)


def flatten(whole: ModelProto, light: ModelProto, dims: Mapping[str, int]) -> ModelProto:
    """A model with its weights, and with the nodes that `typed` finds for `light`, the same model. Changes both."""
    if whole.functions:
        whole = inliner.inline_local_functions(whole)
    if any(map(needs_resolving, whole.graph.node)):
        hoist(whole)
        nodes = typed(light, dims).nodes
        whole.graph.ClearField("node")
        whole.graph.node.extend(nodes)
    return whole


def _size_dims(inputs: Iterable[ValueInfoProto], others: Iterable[ValueInfoProto], dims: Mapping[str, int]) -> None:
    """Sets every symbolic or unknown dimension of the inputs, and every other dimension of the same name."""
    open_dims: dict[str, None] = {}
    for value in inputs:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ValueError(f"input {shown(value.name)}: {_unknown_rank(value.type)}")
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                continue
            name = dim.dim_param or f"{value.name}[{index}]"
            if name not in dims:
                which = f"dimension {index} ({shown(dim.dim_param)})" if dim.dim_param else f"dimension {index}"
                option = f"--dim {shown(f'{name}=SIZE')} (dims={{{shown(name)}: SIZE}})"
                raise ValueError(f"input {shown(value.name)}: {which} has no fixed size; set it with {option}")
            open_dims[name] = None
            dim.dim_value = dims[name]
    if unknown := [name for name in dims if name not in open_dims]:
        choices = ", ".join(shown(name)[1:-1] for name in list(open_dims)[:MOST_NAMED]) or "none"
        raise ValueError(f"dims: {shown(unknown[0])} is no input dimension without a fixed size; those are: {choices}")
    for value in others:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]


def _unknown_rank(value_type: TypeProto) -> str:
    """Why the type of an input says too little."""
    which = value_type.WhichOneof("value") or "tensor_type"
    if which == "sequence_type":
        return "is a sequence, of as many tensors as a caller passes; make each of them an input"
    if which == "optional_type":
        return "is an optional, which a caller may pass or not; make it an input of the tensor, or leave it out"
    return "must be a tensor of known rank"


def _declare_weights(graph: GraphProto, inputs: list[ValueInfoProto], weights: Mapping[str, Tensor]) -> None:
    """Turns large initializers into declared inputs; small ones stay with their data.

    Outputs that are inputs or initializers are removed, since their declared type would replace that of the input.
    """
    small = [
        tensor for tensor in graph.initializer if weights[tensor.name].elements <= KEPT_ELEMENTS and _has_data(tensor)
    ]
    names = {tensor.name for tensor in small}
    declared = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in graph.initializer
        if tensor.name not in names
    ]
    sources = weights.keys() | {value.name for value in inputs}
    outputs = [value for value in graph.output if value.name not in sources]
    for field, values in (("initializer", small), ("input", [*inputs, *declared]), ("output", outputs)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)


def _has_data(tensor: TensorProto) -> bool:
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    return any(getattr(tensor, field) for field in fields) or not math.prod(tensor.dims)


def _tensors(model: ModelProto, inputs: Iterable[ValueInfoProto], types: Mapping[str, TypeProto]) -> dict[str, Tensor]:
    """The types of inputs and node outputs, without unused outputs that have none."""
    graph = model.graph
    needed = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    tensors = {value.name: _tensor(f"input {shown(value.name)}", value.type) for value in inputs}
    for node in graph.node:
        for name in filter(None, node.output):
            if is_full(types.get(name)):
                tensors[name] = _tensor(f"{described(node)}: its output {shown(name)}", types[name])
            elif name in needed:
                raise ValueError(_untyped(model, node, name, types.get(name)))
    return tensors


def _tensor(place: str, value_type: TypeProto) -> Tensor:
    return tensor_of(place, value_type.tensor_type.elem_type, sizes(value_type))


def _untyped(model: ModelProto, node: NodeProto, name: str, value_type: TypeProto | None) -> str:
    """The reason why a value has no full type, for a message."""
    place = f"{described(node)}: its output {shown(name)}"
    which = value_type.WhichOneof("value") if value_type is not None else None
    if which not in (None, "tensor_type"):
        return f"{place}: is a {str(which).removesuffix('_type')}; only tensors have a size known before the step"
    if value_type is not None and value_type.tensor_type.HasField("shape"):
        sizes = [str(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in value_type.tensor_type.shape.dim]
        return f"{place}: has the shape [{', '.join(sizes)}], which depends on values or on an op unknown to ONNX"
    if not onnx.defs.has(node.op_type, node.domain):
        return f"{place}: has no shape: its kind is unknown to ONNX; declare it in the graph's value_info"
    try:
        shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        return f"{place}: has no shape: {' '.join(str(error).split())[:300]}"
    return f"{place}: has no shape that follows from shapes and constants: even its rank depends on values"
