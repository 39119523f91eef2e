"""The segments of an ONNX model for ONNX Runtime: one model each, which run one after another, each in a session on its
device.

ONNX Runtime places nodes by itself within a session, so a session is what can be put on a device. A segment holds nodes
of one device; no value goes back to it from a later one. A weight that several segments read is in each of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnplace.cluster import Cluster
from gnnplace.exports import model_files
from gnnplace.exports.model import Model, check_same
from gnnplace.exports.refusal import UnsayableError, listed
from gnnplace.frontends.network.graph import read_graph
from gnnplace.frontends.network.network import Network
from gnnplace.frontends.onnx.flops import DTYPES
from gnnplace.frontends.onnx.read import ONNX, read_model
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem

if TYPE_CHECKING:  # the package onnx is optional
    from onnx import ModelProto, ValueInfoProto

PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider"}
TRAINING = ("ai.onnx.training.", "ai.onnx.preview.training.")
CHAIN = Path(model_files.__file__).with_name("chain.py")
MAX_PROTOBUF_BYTES = 2**31 - 1
NUMBERS = {name: number for number, name in DTYPES.items()}


class Segment(NamedTuple):
    """Nodes that run together on a device, in their order, and the
    values that they take from others and give to others.
    """

    device: int
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def onnxruntime(problem: Problem, placement: Placement, model: Model | None) -> dict[str, str | bytes]:
    """The files of a folder: a model for each segment, `manifest.json`, and `chain.py`, which runs them.

    Raises UnsayableError where no .onnx was placed, for nodes of training and for devices that ONNX Runtime has not;
    ValueError for another model and for a segment of more than 2 GiB.
    """
    if model is None or Path(model.path).suffix != ".onnx":
        given = "no model" if model is None else model.path
        raise UnsayableError(
            f"onnxruntime: takes an ONNX file (.onnx), not {given}; place the .onnx that the network is exported to"
        )
    network = read_model(model.path, model.dims)
    check_same(read_graph(model.path, network, ONNX, problem.graph.name).graph, problem.graph, model)
    _check_runs(network, problem, placement)
    ops = node_ops(problem.graph, network)
    found = segments(network, placement.device[ops].tolist())
    names = [f"{number}.onnx" for number in range(len(found))]
    written: dict[str, str | bytes] = dict(zip(names, parts(model.path, network, found), strict=True))
    written["manifest.json"] = json.dumps(_manifest(problem.cluster, network, found, names), indent=1) + "\n"
    return written | {CHAIN.name: CHAIN.read_text()}


def node_ops(graph: ComputationGraph, network: Network) -> list[int]:
    """The op of every node.

    Ops are those of inputs, weights and nodes, in this order; a weight that is read has two.
    """
    found = []
    op = len(network.inputs)
    for number in range(len(network.initializers) + len(network.nodes)):
        if number >= len(network.initializers):
            found.append(op)
        is_read = graph.kind[op] == "initializer" and op + 1 < graph.num_ops and graph.kind[op + 1] == "read"
        op += 2 if is_read else 1
    assert op == graph.num_ops
    return found


def segments(network: Network, device: Sequence[int]) -> list[Segment]:
    """The segments of nodes with these devices, in an order in which they can run.

    A node's level is the number of times that a path to it changes the device, at most; a segment is what has one level
    and one device.
    """
    level = _levels(network, device)
    keys = sorted(set(zip(level, device, strict=True)))
    number = {key: index for index, key in enumerate(keys)}
    own = [number[key] for key in zip(level, device, strict=True)]
    maker = {value: own[node] for node, each in enumerate(network.nodes) for value in each.outputs if value}
    weights = set(network.initializers)
    maker |= {value: 0 for value in network.outputs if value in weights}  # a result that no node makes
    asked = [(value, own[node]) for node, each in enumerate(network.nodes) for value in each.inputs if value]
    crossing = {value for value, reader in asked if maker.get(value, reader) != reader} | set(network.outputs)
    nodes: list[list[int]] = [[] for _ in keys]
    taken: list[dict[str, None]] = [{} for _ in keys]
    given: list[list[str]] = [[] for _ in keys]
    for node, index in enumerate(own):
        nodes[index].append(node)
    for value, reader in asked:
        if value not in weights and maker.get(value) != reader:
            taken[reader][value] = None
    for value, index in maker.items():
        if value in crossing:
            given[index].append(value)
    return [Segment(device, tuple(nodes[i]), tuple(taken[i]), tuple(given[i])) for i, (_, device) in enumerate(keys)]


def _levels(network: Network, device: Sequence[int]) -> list[int]:
    """The levels of nodes; what depends on no input has that of what
    reads it first, so that constants make no segments.
    """
    maker = {value: node for node, each in enumerate(network.nodes) for value in each.outputs if value}
    sources = [{maker[value] for value in each.inputs if value in maker} for each in network.nodes]
    readers: list[list[int]] = [[] for _ in network.nodes]
    level: list[int] = []
    fed: list[bool] = []
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


def _manifest(cluster: Cluster, network: Network, found: Sequence[Segment], names: Sequence[str]) -> dict[str, Any]:
    """What `chain.py` reads: segments in their order, with file, device, execution provider, inputs and outputs."""
    kinds = [device.kind for device in cluster.devices]
    rows = []
    for name, segment in zip(names, found, strict=True):
        kind = kinds[segment.device]
        options = {} if kind == "cpu" else {"device_id": kinds[: segment.device].count(kind)}
        where = {"device": cluster.device_names[segment.device], "provider": PROVIDERS[kind], "options": options}
        rows.append({"file": name, **where, "inputs": segment.inputs, "outputs": segment.outputs})
    return {"inputs": network.inputs, "outputs": network.outputs, "segments": rows}


def parts(path: str, network: Network, segments: Sequence[Segment]) -> list[bytes]:
    """The model of each segment, with its weights. Values have the sizes that were placed; functions are inlined, as in
    the placed graph.

    The file is parsed in this process only after a child process has read it within limits. Raises ValueError where
    weights beside it can't be read and for a segment of more than 2 GiB.
    """
    import onnx.inliner
    from onnx.checker import ValidationError

    try:
        whole = onnx.load(path, format="protobuf")
    except (OSError, ValidationError) as error:  # of the file it was read before: its weights beside it
        raise ValueError(f"{path}: its weights can't be read: {' '.join(str(error).split())[:300]}") from error
    if whole.functions:
        whole = onnx.inliner.inline_local_functions(whole)
    return [_part(path, whole, network, number, segment) for number, segment in enumerate(segments)]


def _part(path: str, whole: ModelProto, network: Network, number: int, segment: Segment) -> bytes:
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
    from onnx import helper

    tensor = network.tensors[value]
    return helper.make_tensor_value_info(value, NUMBERS[tensor.dtype], tensor.shape)
