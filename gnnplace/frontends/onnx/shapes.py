"""The types of all values of an ONNX graph: symbolic dimensions get sizes, functions are inlined, shapes are inferred.

Shape inference never reads weights: a large or external initializer is declared by its dimensions alone. It reads small
initializers (shapes, axes, scales).

It continues where ONNX's own inference stops. ONNX propagates values through few kinds of nodes; PyTorch's older
exporter computes slice bounds with others (`Shape`, `Gather`, `Add`, `Div`, `Mul`). So small values that depend only on
constants and shapes are computed here (`inferred`) by ONNX's reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
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
    numpy_helper,
    shape_inference,
)
from onnx.reference import ReferenceEvaluator

from gnnplace.frontends.network.network import Tensor, shown
from gnnplace.frontends.onnx.checks import ONNX_DOMAINS, check_graph, check_model, described, tensor_of

KEPT_ELEMENTS = 1024  # smaller initializers keep their data for shape inference
LEAST_IR_VERSION = 4  # the first in which initializers need not be inputs
MOST_NAMED = 10
COMPUTED_KINDS = {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand", "Floor",
    "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Mod", "Mul", "Neg", "Not", "Or", "Range",
    "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose",
    "Unsqueeze", "Where",
}  # fmt: skip
MOST_ELEMENTS = 64  # of inputs and outputs of a computed node

Types = Mapping[str, TypeProto]


class Typed(NamedTuple):
    """An inlined graph: its nodes, the names of its inputs, initializers and outputs, and the types of its values."""

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
    weights = {
        tensor.name: tensor_of(shown(tensor.name), tensor.data_type, tensor.dims) for tensor in graph.initializer
    }
    inputs = [value for value in graph.input if value.name not in weights]
    outputs = dict.fromkeys(value.name for value in graph.output)
    _size_dims(inputs, [*graph.output, *graph.value_info], dims)
    _declare_weights(graph, inputs, weights)
    model.ir_version = max(model.ir_version, LEAST_IR_VERSION)
    tensors = weights | _tensors(model, inputs, inferred(model))
    return Typed(tuple(graph.node), tuple(value.name for value in inputs), tuple(weights), tuple(outputs), tensors)


def _size_dims(inputs: Iterable[ValueInfoProto], others: Iterable[ValueInfoProto], dims: Mapping[str, int]) -> None:
    """Sets every symbolic or unknown dimension of the inputs, and every other dimension of the same name."""
    open_dims: dict[str, None] = {}
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
            open_dims[name] = None
            dim.dim_value = dims[name]
    if unknown := [name for name in dims if name not in open_dims]:
        choices = ", ".join(shown(name)[1:-1] for name in list(open_dims)[:MOST_NAMED]) or "none"
        raise ValueError(f"dims: {shown(unknown[0])} is no input dimension without a fixed size; those are: {choices}")
    for value in others:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]


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
    return tensor_of(place, value_type.tensor_type.elem_type, _sizes(value_type))


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
    return f"{place}: has no shape that can be inferred"


def inferred(model: ModelProto) -> dict[str, TypeProto]:
    """The types of all values that can be inferred from input shapes and constants; `model` is not changed."""
    work = ModelProto()
    work.CopyFrom(model)
    while True:
        graph = shape_inference.infer_shapes(work, data_prop=True).graph
        types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
        types |= {
            tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            for tensor in work.graph.initializer
            if tensor.name not in types
        }
        if all(is_full(types.get(name)) for node in work.graph.node for name in filter(None, node.output)):
            return types
        constants = dict(_computed(work, types))
        if not constants:
            return types
        _replace(work, constants)


def is_full(value_type: TypeProto | None) -> bool:
    """Whether a type has a dtype and all sizes."""
    tensor = value_type.tensor_type if value_type is not None else TypeProto.Tensor()
    return (
        tensor.elem_type != 0
        and tensor.HasField("shape")
        and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    )


def _computed(model: ModelProto, types: Types) -> Iterator[tuple[str, TensorProto]]:
    """The outputs of nodes that depend only on small constants and known shapes, in node order."""
    values = {tensor.name: tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= MOST_ELEMENTS}
    for node in model.graph.node:
        if (
            len(node.output) == 1
            and node.domain in ONNX_DOMAINS
            and (value := _value(node, values, types, model)) is not None
        ):
            values[node.output[0]] = value
            yield node.output[0], value


def _value(node: NodeProto, values: Mapping[str, TensorProto], types: Types, model: ModelProto) -> TensorProto | None:
    """The output of a node, or None if it is unknown or large."""
    name = node.output[0]
    if node.op_type in ("Shape", "Size"):
        return _shape_or_size(node, types.get(node.input[0]))
    small = is_full(types.get(name)) and math.prod(_sizes(types[name])) <= MOST_ELEMENTS
    inputs = [value for value in dict.fromkeys(node.input) if value]
    if node.op_type not in COMPUTED_KINDS or not small or any(value not in values for value in inputs):
        return None
    graph = helper.make_graph(
        [node], "node", [], [helper.make_value_info(name, types[name])], [values[value] for value in inputs]
    )
    try:
        with np.errstate(all="ignore"):
            (output,) = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import)).run(None, {})
        return numpy_helper.from_array(np.asarray(output), name)
    except MemoryError:
        raise
    except Exception:  # ONNX's reference may raise anything for an invalid node, whose value is then unknown
        return None


def _shape_or_size(node: NodeProto, value_type: TypeProto | None) -> TensorProto | None:
    """The output of a `Shape` or `Size` node; None if its input has no full type."""
    if value_type is None or not is_full(value_type):
        return None
    sizes, attributes = _sizes(value_type), {attribute.name: attribute.i for attribute in node.attribute}
    shape = sizes[attributes.get("start", 0) : attributes.get("end", len(sizes))]
    return numpy_helper.from_array(
        np.array(math.prod(sizes) if node.op_type == "Size" else shape, dtype=np.int64), node.output[0]
    )


def _sizes(value_type: TypeProto) -> list[int]:
    return [dim.dim_value for dim in value_type.tensor_type.shape.dim]


def _replace(model: ModelProto, constants: Mapping[str, TensorProto]) -> None:
    """Replaces nodes by the constants that they produce."""
    nodes = [node for node in model.graph.node if not (len(node.output) == 1 and node.output[0] in constants)]
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(constants.values())
