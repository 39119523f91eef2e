"""Small values of an ONNX graph that depend on constants and shapes alone, computed by ONNX's reference implementation.

ONNX's own inference propagates values through few kinds of nodes. Exporters compute slice bounds, conditions and
numbers of turns with others (`Shape`, `Gather`, `Div`, `Less`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

COMPUTED_KINDS = {
    "Abs", "Add", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Clip",
    "Compress", "Concat", "Constant", "CumSum", "Div", "Equal", "Flatten", "Floor", "Gather", "GatherElements",
    "GatherND", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Mod", "Mul", "Neg",
    "NonZero", "Not", "Or", "Pow", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round",
    "ScatterElements", "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
    "Where", "Xor",
}  # fmt: skip
GROWING_KINDS = {
    "ConstantOfShape",
    "Expand",
    "Max",
    "Min",
    "Pad",
    "Range",
    "Sum",
    "Tile",
}  # their outputs may be far larger than inputs
MOST_ELEMENTS = 64  # of inputs and outputs of a computed node
ONNX_DOMAINS = ("", "ai.onnx")

Types = Mapping[str, TypeProto]


def computed(model: ModelProto, types: Types) -> dict[str, TensorProto]:
    """The outputs of nodes that depend only on small constants and known shapes, in node order."""
    values = small_initializers(model)
    results: dict[str, TensorProto] = {}
    for node in model.graph.node:
        outputs = _outputs(node, values, types, model)
        results |= outputs
        values |= outputs
    return results


def small_initializers(model: ModelProto) -> dict[str, TensorProto]:
    """The initializers that are small enough to compute with."""
    return {tensor.name: tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= MOST_ELEMENTS}


def run(
    nodes: Sequence[NodeProto], inputs: Mapping[str, np.ndarray], outputs: Sequence[str], model: ModelProto
) -> list[np.ndarray] | None:
    """The outputs of nodes in the opset of `model`; None if the reference implementation can't compute them."""
    given, wanted = ([ValueInfoProto(name=name) for name in names] for names in (inputs, outputs))
    graph = helper.make_graph(list(nodes), "nodes", given, wanted)
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import))
            return [np.asarray(value) for value in evaluator.run(None, dict(inputs))]
    except MemoryError:
        raise
    except (
        Exception
    ):  # the reference implementation may raise anything for an invalid node, whose value is then unknown
        return None


def is_full(value_type: TypeProto | None) -> bool:
    """Whether a type has a dtype and all sizes."""
    tensor = value_type.tensor_type if value_type is not None else TypeProto.Tensor()
    return (
        tensor.elem_type != 0
        and tensor.HasField("shape")
        and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    )


def sizes(value_type: TypeProto) -> list[int]:
    """The sizes of a full type."""
    return [dim.dim_value for dim in value_type.tensor_type.shape.dim]


def _outputs(
    node: NodeProto, values: Mapping[str, TensorProto], types: Types, model: ModelProto
) -> dict[str, TensorProto]:
    """The values of a node's outputs; empty if they are unknown or large."""
    if node.domain not in ONNX_DOMAINS or not node.output:
        return {}
    if node.op_type in ("Shape", "Size"):
        value = _shape_or_size(node, types.get(node.input[0]) if node.input else None)
        return {} if value is None else {value.name: value}
    inputs, outputs = ([name for name in dict.fromkeys(names) if name] for names in (node.input, node.output))
    full = all(is_full(types.get(name)) and math.prod(sizes(types[name])) <= MOST_ELEMENTS for name in outputs)
    if not (node.op_type in COMPUTED_KINDS or (node.op_type in GROWING_KINDS and full)) or not values.keys() >= {
        *inputs
    }:
        return {}
    results = run([node], {name: numpy_helper.to_array(values[name]) for name in inputs}, outputs, model)
    if results is None or any(result.size > MOST_ELEMENTS for result in results):
        return {}
    return {name: numpy_helper.from_array(result, name) for name, result in zip(outputs, results, strict=True)}


def _shape_or_size(node: NodeProto, value_type: TypeProto | None) -> TensorProto | None:
    """The output of a `Shape` or `Size` node; None if its input has no full type."""
    if value_type is None or not is_full(value_type):
        return None
    shape, attributes = sizes(value_type), {attribute.name: attribute.i for attribute in node.attribute}
    part = shape[attributes.get("start", 0) : attributes.get("end", len(shape))]
    value = math.prod(shape) if node.op_type == "Size" else part
    return numpy_helper.from_array(np.array(value, dtype=np.int64), node.output[0])


def empty_values(types: Types, names: Iterable[str]) -> Iterator[TensorProto]:
    """The values of those names that have no elements, which their types say completely."""
    for name in names:
        if is_full(types.get(name)) and not math.prod(sizes(types[name])):
            yield helper.make_tensor(name, types[name].tensor_type.elem_type, sizes(types[name]), [])
