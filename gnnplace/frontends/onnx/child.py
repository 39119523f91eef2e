"""The child process that reads one ONNX file: `python -m gnnplace.frontends.onnx.child REQUEST` prints a line of JSON.

`onnx.read` makes REQUEST; `isolation.limited` limits the process. If a hostile file makes protobuf or shape inference
hang, use all memory or crash, only this process suffers. External data is not opened.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, NodeProto, TensorProto, numpy_helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError

from gnnplace.frontends.network.network import Network, Node, to_json
from gnnplace.frontends.onnx.checks import kind_of
from gnnplace.frontends.onnx.flops import VALUED
from gnnplace.frontends.onnx.shapes import typed
from gnnplace.isolation.limited import answer

MOST_NUMBERS, MOST_TEXT = 64, 1000  # larger attributes are left out
# the key of a node's metadata under which PyTorch's exporter lists the path of modules, with the op at its end
NAME_SCOPES = "pkg.torch.onnx.name_scopes"


def main(request: str) -> None:
    """Answers one request on stdout."""
    answer(request, lambda arguments: to_json(read(arguments["file"], arguments["dims"])))


def read(file: str, dims: Mapping[str, int]) -> Network:
    """The network in the file, with all shapes. Raises ValueError if the file is refused."""
    try:
        model = onnx.load(file, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise ValueError(
            "can't be parsed: it is no ONNX model, is truncated, is nested too deeply, or needs more memory than "
            "the limit"
        ) from error
    try:
        graph = typed(model, dims)
    except (RuntimeError, InferenceError, ValidationError) as error:  # ONNX's C++: shape inference and inlining
        raise ValueError(" ".join(str(error).split())[:300]) from error
    numbers = {tensor.name: tensor for tensor in model.graph.initializer}
    numbers |= {
        node.output[0]: attribute.t
        for node in graph.nodes
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    nodes = tuple(_node(node, numbers) for node in graph.nodes)
    return Network(graph.inputs, graph.initializers, nodes, graph.outputs, graph.tensors)


def _node(node: NodeProto, numbers: Mapping[str, TensorProto]) -> Node:
    attributes = {attribute.name: value for attribute in node.attribute if (value := _value(attribute)) is not None}
    attributes |= dict(_given(node, numbers))
    return Node(node.name, kind_of(node), _layer(node), tuple(node.input), tuple(node.output), attributes)


def _given(node: NodeProto, numbers: Mapping[str, TensorProto]) -> Iterator[tuple[str, int]]:
    """What few rules need besides attributes: numbers that are inputs (`input_1`), the counts of trees and of nodes."""
    for index in VALUED.get(kind_of(node), ()):
        name = node.input[index] if index < len(node.input) else ""
        if name in numbers and math.prod(numbers[name].dims) == 1:
            yield f"input_{index}", int(numpy_helper.to_array(numbers[name]).reshape(-1)[0])
    if "TreeEnsemble" in node.op_type:
        lists = {attribute.name: attribute.ints for attribute in node.attribute}
        yield "trees", len(lists.get("tree_roots") or set(lists.get("nodes_treeids", ())))
        yield "nodes", len(lists.get("nodes_featureids", ()))


def _value(attribute: AttributeProto) -> Any:
    """The value of an attribute that may affect costs: integers and short text. None for all others."""
    if attribute.type == AttributeProto.INT:
        return attribute.i
    if attribute.type == AttributeProto.INTS and len(attribute.ints) <= MOST_NUMBERS:
        return list(attribute.ints)
    if attribute.type == AttributeProto.STRING and len(attribute.s) <= MOST_TEXT:
        return attribute.s.decode(errors="replace")
    return None


def _layer(node: NodeProto) -> str | None:
    """The name scope of a node, or else the module path that PyTorch's exporter recorded."""
    scope = node.name.rpartition("/")[0].strip("/")
    if scope:
        return scope
    metadata = next(
        (entry.value for entry in node.metadata_props if entry.key == NAME_SCOPES and len(entry.value) <= MOST_TEXT),
        "[]",
    )
    try:
        scopes = ast.literal_eval(metadata)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return str(scopes[-2]) or None if isinstance(scopes, list) and len(scopes) > 1 else None


if __name__ == "__main__":
    main(sys.argv[1])
