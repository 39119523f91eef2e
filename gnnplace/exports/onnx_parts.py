"""Segments of an ONNX model as models of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx
from onnx import ModelProto, ValueInfoProto, helper, inliner
from onnx.checker import ValidationError

from gnnplace.frontends.network.network import Network
from gnnplace.frontends.onnx.model import DTYPES
from gnnplace.frontends.onnx.shapes import LEAST_IR_VERSION

if TYPE_CHECKING:
    from gnnplace.exports.onnx_segments import Segment

MAX_PROTOBUF_BYTES = 2**31 - 1
NUMBERS = {name: number for number, name in DTYPES.items()}


def parts(path: str, network: Network, segments: Sequence[Segment]) -> list[bytes]:
    """The model of each segment, with its weights. Values have the sizes that were placed; functions are inlined, as in the placed graph.

    The file is parsed in this process only after a child process has read it within limits. Raises ValueError where weights beside it
    can't be read and for a segment of more than 2 GiB.
    """
    try:
        whole = onnx.load(path, format="protobuf")
    except (OSError, ValidationError) as error:  # of the file it was read before: its weights beside it
        raise ValueError(f"{path}: its weights can't be read: {' '.join(str(error).split())[:300]}") from error
    if whole.functions:
        whole = inliner.inline_local_functions(whole)
    return [_part(path, whole, network, number, segment) for number, segment in enumerate(segments)]


def _part(path: str, whole: ModelProto, network: Network, number: int, segment: Segment) -> bytes:
    nodes = [whole.graph.node[index] for index in segment.nodes]
    held = {value for node in nodes for value in node.input} | set(segment.outputs)
    weights = [tensor for tensor in whole.graph.initializer if tensor.name in held]
    inputs, outputs = ([_declared(network, value) for value in values] for values in (segment.inputs, segment.outputs))
    graph = helper.make_graph(nodes, f"{whole.graph.name}-{number}", inputs, outputs, weights)
    version = max(whole.ir_version, LEAST_IR_VERSION)
    model = helper.make_model(graph, opset_imports=whole.opset_import, ir_version=version, producer_name="gnnplace")
    if model.ByteSize() > MAX_PROTOBUF_BYTES:
        raise ValueError(f"{path}: segment {number} has {model.ByteSize()} bytes, and a file of ONNX at most {MAX_PROTOBUF_BYTES}")
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _declared(network: Network, value: str) -> ValueInfoProto:
    tensor = network.tensors[value]
    return helper.make_tensor_value_info(value, NUMBERS[tensor.dtype], tensor.shape)
