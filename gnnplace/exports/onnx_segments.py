"""The segments of an ONNX model for ONNX Runtime: a model each, which run one after another in sessions on devices.

Within a session ONNX Runtime places nodes itself, so only a session can be put on a device. A segment holds nodes of
one device, and reads no value of a later segment. A weight that several segments read is in each of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnplace.cluster import Cluster
from gnnplace.exports import model_files
from gnnplace.exports.assignments import checked, of_ops
from gnnplace.exports.targets import Model, check_same
from gnnplace.exports.trial import Trial
from gnnplace.frontends.network.graph import read_graph
from gnnplace.frontends.network.network import Network, Node
from gnnplace.frontends.onnx.flops import DTYPES
from gnnplace.frontends.onnx.read import ONNX, read_model
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import UnsayableError, listed

if TYPE_CHECKING:  # the package onnx is optional
    from onnx import ModelProto, ValueInfoProto

OF_PROVIDER = {"CPUExecutionProvider": "cpu", "CUDAExecutionProvider": "cuda"}
PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider"}
TRAINING = ("ai.onnx.training.", "ai.onnx.preview.training.")
CHAIN = Path(model_files.__file__).with_name("chain.py")
MAX_PROTOBUF_BYTES = 2**31 - 1
NUMBERS = {name: number for number, name in DTYPES.items()}


class Segment(NamedTuple):
    """Nodes of one device in their order, the values that they read from outside, and those that others read."""

    device: int
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def onnxruntime(problem: Problem, placement: Placement, model: Model | None) -> dict[str, str | bytes]:
    """The files of a folder: a model for each segment, `manifest.json`, and `chain.py`, which runs them.

    Raises UnsayableError if the graph was not read from an .onnx, for nodes of training, and for devices that ONNX
    Runtime lacks; ValueError if the model is not the placed one, and for a segment of more than 2 GiB.
    """
    if model is None or Path(model.path).suffix != ".onnx":
        given = "no model" if model is None else model.path
        raise UnsayableError(
            f"onnxruntime: takes an ONNX file (.onnx), not {given}; place the .onnx that the network is exported to"
        )
    network = read_model(model.path, model.dims)
    check_same(read_graph(model.path, network, ONNX, problem.graph.name), problem.graph, model)
    _check_runs(network, problem, placement)
    ops = node_ops(problem.graph, network)
    parts = segments(network, placement.device[ops].tolist())
    names = [f"{number}.onnx" for number in range(len(parts))]
    files: dict[str, str | bytes] = dict(zip(names, models(model, network, parts), strict=True))
    files["manifest.json"] = json.dumps(_manifest(problem.cluster, network, parts, names), indent=1) + "\n"
    return files | {CHAIN.name: CHAIN.read_text()}


def assigned_onnxruntime(problem: Problem, document: object, model: Model | None, trial: Trial | None) -> Placement:
    """The placement of a map from node to device or provider, or of an exported `manifest.json`.

    A node without a name is called by its first output. Raises ValueError as `of_ops` does.
    """
    if model is None or Path(model.path).suffix != ".onnx":
        raise ValueError("names nodes of an ONNX file (.onnx), and that is not what was placed")
    if isinstance(document, dict) and "segments" in document:
        rows = checked(document["segments"], list[dict[str, Any]], "manifest with segments")
        document = {node: row["device"] for row in rows for node in row.get("nodes", ())}
    named = checked(document, dict[str, str], "map from node to device or provider")
    devices = {node: _without_provider(device) for node, device in named.items()}
    network = read_model(model.path, model.dims)
    ops = dict(zip(map(_node_name, network.nodes), node_ops(problem.graph, network), strict=True))
    return of_ops(problem, devices, ops, "node")


def _without_provider(device: str) -> str:
    """`cuda:1` for `CUDAExecutionProvider:1`; a device's own name as it is."""
    provider, _, number = device.partition(":")
    return f"{OF_PROVIDER[provider]}:{number or 0}" if provider in OF_PROVIDER else device


def _node_name(node: Node) -> str:
    return node.name or node.outputs[0]


def node_ops(graph: ComputationGraph, network: Network) -> list[int]:
    """The op of every node.

    The ops of a graph are those of inputs, weights and nodes, in this order. A weight that is read has two ops.
    """
    ops = []
    op = len(network.inputs)
    for number in range(len(network.initializers) + len(network.nodes)):
        if number >= len(network.initializers):
            ops.append(op)
        is_read = graph.kind[op] == "initializer" and op + 1 < graph.num_ops and graph.kind[op + 1] == "read"
        op += 2 if is_read else 1
    assert op == graph.num_ops
    return ops


def segments(network: Network, device: Sequence[int]) -> list[Segment]:
    """The segments of nodes on these devices, in an order in which they can run.

    A node's level is the largest number of changes of device on a path to it. A segment is the nodes of one level and
    one device.
    """
    level = _levels(network, device)
    keys = sorted(set(zip(level, device, strict=True)))
    number = {key: index for index, key in enumerate(keys)}
    segment = [number[key] for key in zip(level, device, strict=True)]
    maker = {value: segment[index] for index, node in enumerate(network.nodes) for value in node.outputs if value}
    weights = set(network.initializers)
    maker |= {value: 0 for value in network.outputs if value in weights}  # a result that no node makes
    reads = [(value, segment[index]) for index, node in enumerate(network.nodes) for value in node.inputs if value]
    crossing = {value for value, reader in reads if maker.get(value, reader) != reader} | set(network.outputs)
    nodes: list[list[int]] = [[] for _ in keys]
    inputs: list[dict[str, None]] = [{} for _ in keys]
    outputs: list[list[str]] = [[] for _ in keys]
    for node, index in enumerate(segment):
        nodes[index].append(node)
    for value, reader in reads:
        if value not in weights and maker.get(value) != reader:
            inputs[reader][value] = None
    for value, index in maker.items():
        if value in crossing:
            outputs[index].append(value)
    return [
        Segment(device, tuple(nodes[index]), tuple(inputs[index]), tuple(outputs[index]))
        for index, (_, device) in enumerate(keys)
    ]


def _levels(network: Network, device: Sequence[int]) -> list[int]:
    """The levels of nodes. A node that depends on no input has the level of its first reader, so that constants make no
    segments.
    """
    maker = {value: index for index, node in enumerate(network.nodes) for value in node.outputs if value}
    sources = [{maker[value] for value in node.inputs if value in maker} for node in network.nodes]
    readers: list[list[int]] = [[] for _ in network.nodes]
    level: list[int] = []
    fed: list[bool] = []  # whether a node depends on an input
    for node, before in enumerate(sources):
        level.append(max((level[source] + (device[source] != device[node]) for source in before), default=0))
        fed.append(
            any(fed[source] for source in before) or not set(network.inputs).isdisjoint(network.nodes[node].inputs)
        )
        for source in before:
            readers[source].append(node)
    for node in reversed(range(len(level))):
        if not fed[node] and readers[node]:
            level[node] = min(level[reader] - (device[reader] != device[node]) for reader in readers[node])
    return level


def _check_runs(network: Network, problem: Problem, placement: Placement) -> None:
    """Raises UnsayableError for nodes and devices that ONNX Runtime can't run."""
    trains = [f"{node.name or node.kind} ({node.kind})" for node in network.nodes if node.kind.startswith(TRAINING)]
    if trains:
        raise UnsayableError(
            f"onnxruntime: runs no nodes of training, and {listed(trains)} are; place the model for inference"
        )
    devices = [problem.cluster.devices[device] for device in sorted(set(placement.device.tolist()))]
    absent = [device.name for device in devices if device.kind not in PROVIDERS]
    if absent:
        raise UnsayableError(
            f"onnxruntime: has no provider for {listed(absent)}; place with --devices of CPUs and GPUs"
        )


def _manifest(cluster: Cluster, network: Network, segments: Sequence[Segment], names: Sequence[str]) -> dict[str, Any]:
    """The manifest for `chain.py`: each segment's file, device, execution provider, inputs and outputs, in order."""
    kinds = [device.kind for device in cluster.devices]
    rows = []
    for name, segment in zip(names, segments, strict=True):
        kind = kinds[segment.device]
        options = {} if kind == "cpu" else {"device_id": kinds[: segment.device].count(kind)}
        where = {"device": cluster.device_names[segment.device], "provider": PROVIDERS[kind], "options": options}
        nodes = [_node_name(network.nodes[node]) for node in segment.nodes]
        rows.append({"file": name, **where, "inputs": segment.inputs, "outputs": segment.outputs, "nodes": nodes})
    return {"inputs": network.inputs, "outputs": network.outputs, "segments": rows}


def models(model: Model, network: Network, segments: Sequence[Segment]) -> list[bytes]:
    """The model of each segment with its weights. As in the placed graph, values have sizes and loops are unrolled.

    This process parses the file only after a child process has read it within limits. Raises ValueError if the weights
    beside the file can't be read, and for a segment of more than 2 GiB.
    """
    import onnx
    from onnx.checker import ValidationError

    from gnnplace.frontends.onnx.shapes import flatten

    path = model.path
    try:
        whole = onnx.load(path, format="protobuf")
        light = onnx.load(path, format="protobuf", load_external_data=False)
    except (
        OSError,
        ValidationError,
    ) as error:  # the file itself has been read before; its weights are in files beside it
        raise ValueError(f"{path}: its weights can't be read: {' '.join(str(error).split())[:300]}") from error
    whole = flatten(whole, light, model.dims)
    return [_model(path, whole, network, number, segment) for number, segment in enumerate(segments)]


def _model(path: str, whole: ModelProto, network: Network, number: int, segment: Segment) -> bytes:
    """The model of one segment."""
    from onnx import helper

    from gnnplace.frontends.onnx.shapes import LEAST_IR_VERSION

    nodes = [whole.graph.node[index] for index in segment.nodes]
    held = {value for node in nodes for value in node.input} | set(segment.outputs)
    weights = [tensor for tensor in whole.graph.initializer if tensor.name in held]
    inputs, outputs = ([_declared(network, value) for value in values] for values in (segment.inputs, segment.outputs))
    graph = helper.make_graph(nodes, f"{whole.graph.name}-{number}", inputs, outputs, weights)
    version = max(whole.ir_version, LEAST_IR_VERSION)
    model = helper.make_model(graph, opset_imports=whole.opset_import, ir_version=version, producer_name="gnnplace")
    if model.ByteSize() > MAX_PROTOBUF_BYTES:
        raise ValueError(
            f"{path}: segment {number} has {model.ByteSize()} bytes, and a file of ONNX at most {MAX_PROTOBUF_BYTES}"
        )
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _declared(network: Network, value: str) -> ValueInfoProto:
    """The declaration of an input or output."""
    from onnx import helper

    tensor = network.tensors[value]
    return helper.make_tensor_value_info(value, NUMBERS[tensor.dtype], tensor.shape)
