"""ONNX's data types, and a network as JSON, the form in which the child process returns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnplace.frontends.network.network import Network, Node, Tensor

# Data type number in the format -> name used by all front-ends.
DTYPES: dict[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8_e4m3fn",
    18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1",
    24: "float8_e8m0",
    25: "uint2", 26: "int2", 27: "float6_e2m3", 28: "float6_e3m2",
}  # fmt: skip


def to_json(network: Network) -> dict[str, Any]:
    """The network as a JSON object."""
    tensors = {name: (tensor.shape, tensor.dtype) for name, tensor in network.tensors.items()}
    nodes = [
        (node.name, node.kind, node.layer, node.inputs, node.outputs, dict(node.attributes)) for node in network.nodes
    ]
    values = {"inputs": network.inputs, "initializers": network.initializers, "outputs": network.outputs}
    return {"nodes": nodes, "tensors": tensors} | values


def from_json(document: Mapping[str, Any]) -> Network:
    """The network of a document made by `to_json`."""
    tensors = {name: Tensor(tuple(shape), dtype) for name, (shape, dtype) in document["tensors"].items()}
    nodes = tuple(
        Node(name, kind, layer, tuple(inputs), tuple(outputs), attributes)
        for name, kind, layer, inputs, outputs, attributes in document["nodes"]
    )
    values = {key: tuple(document[key]) for key in ("inputs", "initializers", "outputs")}
    return Network(nodes=nodes, tensors=tensors, **values)
