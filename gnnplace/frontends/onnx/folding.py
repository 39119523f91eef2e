"""Shape inference with constant folding: goes on where ONNX's own inference stops.

ONNX propagates values through few kinds of nodes; PyTorch's older exporter computes slice bounds with others (`Shape`, `Gather`, `Add`,
`Div`, `Mul`). Small values that depend only on constants and shapes are computed here by ONNX's reference implementation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from gnnplace.frontends.onnx.checks import ONNX_DOMAINS

KINDS = {
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand", "Floor", "Gather", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax", "ReduceMin",
    "ReduceProd", "ReduceSum", "Reshape", "Slice", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
MOST_ELEMENTS = 64  # of a value that is computed, or computed from

Types = Mapping[str, TypeProto]


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
        if all(known(types.get(name)) for node in work.graph.node for name in filter(None, node.output)):
            return types
        found = dict(_computed(work, types))
        if not found:
            return types
        _replace(work, found)


def known(found: TypeProto | None) -> bool:
    """Whether a type has a dtype and all sizes."""
    tensor = found.tensor_type if found is not None else TypeProto.Tensor()
    return tensor.elem_type != 0 and tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)


def _computed(model: ModelProto, types: Types) -> Iterator[tuple[str, TensorProto]]:
    """The outputs of nodes that depend only on small constants and known shapes, in node order."""
    values = {tensor.name: tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= MOST_ELEMENTS}
    for node in model.graph.node:
        if len(node.output) == 1 and node.domain in ONNX_DOMAINS and (value := _value(node, values, types, model)) is not None:
            values[node.output[0]] = value
            yield node.output[0], value


def _value(node: NodeProto, values: Mapping[str, TensorProto], types: Types, model: ModelProto) -> TensorProto | None:
    """The output of a node, or None if it is unknown or large."""
    name = node.output[0]
    if node.op_type in ("Shape", "Size"):
        return _measured(node, types.get(node.input[0]))
    small = known(types.get(name)) and math.prod(_sizes(types[name])) <= MOST_ELEMENTS
    if node.op_type not in KINDS or not small or any(each and each not in values for each in node.input):
        return None
    made = helper.make_graph(
        [node], "node", [], [helper.make_value_info(name, types[name])], [values[each] for each in dict.fromkeys(node.input) if each]
    )
    try:
        with np.errstate(all="ignore"):
            (found,) = ReferenceEvaluator(helper.make_model(made, opset_imports=model.opset_import)).run(None, {})
        return numpy_helper.from_array(np.asarray(found), name)
    except MemoryError:
        raise
    except Exception:  # the reference may raise anything for a wrong node: its value is unknown then
        return None


def _measured(node: NodeProto, found: TypeProto | None) -> TensorProto | None:
    """The output of `Shape` or `Size`."""
    if found is None or not known(found):
        return None
    sizes, asked = _sizes(found), {attribute.name: attribute.i for attribute in node.attribute}
    shape = sizes[asked.get("start", 0) : asked.get("end", len(sizes))]
    return numpy_helper.from_array(np.array(math.prod(sizes) if node.op_type == "Size" else shape, dtype=np.int64), node.output[0])


def _sizes(found: TypeProto) -> list[int]:
    return [dim.dim_value for dim in found.tensor_type.shape.dim]


def _replace(model: ModelProto, found: Mapping[str, TensorProto]) -> None:
    """Replaces nodes by the constants that they produce."""
    left = [node for node in model.graph.node if not (len(node.output) == 1 and node.output[0] in found)]
    model.graph.ClearField("node")
    model.graph.node.extend(left)
    model.graph.initializer.extend(found.values())
