"""The types of all values of an ONNX graph: symbolic dimensions get sizes, functions are inlined, shapes are inferred.

Shape inference never reads weights: a large or external initializer is declared by its dimensions alone. It reads small initializers
(shapes, axes, scales).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, inliner, shape_inference

from gnnplace.frontends.network.network import Tensor, shown
from gnnplace.frontends.onnx.checks import check_graph, check_model, described, tensor_of
from gnnplace.frontends.onnx.folding import inferred, known

KEPT_ELEMENTS = 1024  # smaller initializers keep their data for shape inference
LEAST_IR_VERSION = 4  # from which on initializers need not be inputs
MOST_NAMED = 10


class Typed(NamedTuple):
    """The nodes of a graph, functions inlined, the names of its inputs, initializers and outputs, and the types of its values."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    initializers: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: dict[str, Tensor]


def typed(model: ModelProto, dims: Mapping[str, int]) -> Typed:
    """The graph of a model with the types of all values; `dims` gives sizes of symbolic dimensions. Changes `model`.

    Raises ValueError if `checks` refuses the model, for a dimension without a size, an unused size, a value that is no tensor, and a shape
    that can't be inferred.
    """
    check_model(model)
    if model.functions:
        model = inliner.inline_local_functions(model)
    graph = model.graph
    check_graph(graph)
    weights = {tensor.name: tensor_of(shown(tensor.name), tensor.data_type, tensor.dims) for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    outputs = dict.fromkeys(value.name for value in graph.output)
    _size_dims(inputs, [*graph.output, *graph.value_info], dims)
    _declare_weights(graph, inputs, weights)
    model.ir_version = max(model.ir_version, LEAST_IR_VERSION)
    tensors = weights | _tensors(model, inputs, inferred(model))
    return Typed(tuple(graph.node), tuple(value.name for value in inputs), tuple(weights), tuple(outputs), tensors)


def _size_dims(inputs: Iterable[ValueInfoProto], others: Iterable[ValueInfoProto], dims: Mapping[str, int]) -> None:
    """Sets every open dimension of the inputs, and every other dimension of the same name."""
    asked: dict[str, None] = {}
    for value in inputs:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ValueError(f"input {shown(value.name)}: must be a tensor of known rank")
        for index, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                continue
            name = dim.dim_param or f"{value.name}[{index}]"
            if name not in dims:
                which = f"dimension {index} ({shown(dim.dim_param)})" if dim.dim_param else f"dimension {index}"
                option = f"--dim {shown(f'{name}=SIZE')} (dims={{{shown(name)}: SIZE}})"
                raise ValueError(f"input {shown(value.name)}: {which} has no fixed size; set it with {option}")
            asked[name] = None
            dim.dim_value = dims[name]
    if unknown := [name for name in dims if name not in asked]:
        there_are = ", ".join(shown(name)[1:-1] for name in list(asked)[:MOST_NAMED]) or "none"
        raise ValueError(f"dims: {shown(unknown[0])} is no input dimension without a fixed size; those are: {there_are}")
    for value in others:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]


def _declare_weights(graph: GraphProto, inputs: list[ValueInfoProto], weights: Mapping[str, Tensor]) -> None:
    """Leaves the data of small initializers in the graph, and makes declared inputs of the others; outputs are what nodes make."""
    kept = [tensor for tensor in graph.initializer if weights[tensor.name].elements <= KEPT_ELEMENTS and _has_data(tensor)]
    names = {tensor.name for tensor in kept}
    given = weights.keys() | {value.name for value in inputs}
    made = [value for value in graph.output if value.name not in given]  # a type declared there would take an input's place
    declared = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in graph.initializer
        if tensor.name not in names
    ]
    for field, values in (("initializer", kept), ("input", [*inputs, *declared]), ("output", made)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)


def _has_data(tensor: TensorProto) -> bool:
    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    fields = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
    return any(getattr(tensor, field) for field in fields) or not math.prod(tensor.dims)


def _tensors(model: ModelProto, inputs: Iterable[ValueInfoProto], types: Mapping[str, TypeProto]) -> dict[str, Tensor]:
    """The types of inputs and node outputs; an unused output without a type is left out."""
    graph = model.graph
    needed = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    tensors = {value.name: _tensor(f"input {shown(value.name)}", value.type) for value in inputs}
    for node in graph.node:
        for name in filter(None, node.output):
            if known(types.get(name)):
                tensors[name] = _tensor(f"{described(node)}: its output {shown(name)}", types[name])
            elif name in needed:
                raise ValueError(_untyped(model, node, name, types.get(name)))
    return tensors


def _tensor(place: str, found: TypeProto) -> Tensor:
    return tensor_of(place, found.tensor_type.elem_type, [dim.dim_value for dim in found.tensor_type.shape.dim])


def _untyped(model: ModelProto, node: NodeProto, name: str, found: TypeProto | None) -> str:
    """Why a value has no full type."""
    place = f"{described(node)}: its output {shown(name)}"
    which = found.WhichOneof("value") if found is not None else None
    if which not in (None, "tensor_type"):
        return f"{place}: is a {str(which).removesuffix('_type')}; only tensors have a size known before the step"
    if found is not None and found.tensor_type.HasField("shape"):
        sizes = [str(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in found.tensor_type.shape.dim]
        return f"{place}: has the shape [{', '.join(sizes)}], which depends on values or on an op unknown to ONNX"
    if not onnx.defs.has(node.op_type, node.domain):
        return f"{place}: has no shape: its kind is unknown to ONNX; declare it in the graph's value_info"
    try:
        shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        return f"{place}: has no shape: {' '.join(str(error).split())[:300]}"
    return f"{place}: has no shape that can be inferred"
