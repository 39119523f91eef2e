"""The affinity of every node of an OpenVINO model, for the device HETERO.

HETERO splits a model by the affinity of its nodes, and wants one of all nodes or of none. So layers without an op in
the placed graph get one, too: a layer that is folded into a constant gets the affinity of its first reader, a result
that of the layer it reads. Small constants also follow their first reader: with a shape or an axis from another device,
the shape of the reader's output would be unknown. OpenVINO doesn't save affinities with a model (2026.4), so they are a
separate document, by friendly name.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from gnnplace.cluster import Cluster
from gnnplace.exports.assignments import checked, known_as, of_ops
from gnnplace.exports.targets import Model, check_same
from gnnplace.exports.trial import Trial
from gnnplace.frontends.openvino.read import read_openvino
from gnnplace.frontends.openvino.wiring import wired
from gnnplace.frontends.openvino.xml import Layer, read_document
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import UnsayableError, listed

KINDS = {"cpu": "CPU", "gpu": "GPU", "npu": "NPU"}


def openvino(problem: Problem, placement: Placement, model: Model | None) -> str:
    """JSON with the `device` to compile for and the `affinity` of each node by its friendly name.

    Raises UnsayableError if the graph was not read from an .xml, and if the placement uses several CPUs or a device
    that OpenVINO lacks; ValueError if the model is not the placed one, or if its names are not distinct.
    """
    if model is None or Path(model.path).suffix != ".xml":
        given = "no model" if model is None else model.path
        raise UnsayableError(
            f"openvino: takes an OpenVINO model (.xml), not {given}; place the .xml that OpenVINO converts the "
            "network to"
        )
    check_same(read_openvino(model.path, problem.graph.name), problem.graph, model)
    names = openvino_devices(problem.cluster)
    _check_devices(problem, placement, names)
    # HETERO falls back to the last device
    used = sorted(set(placement.device.tolist()), key=lambda device: (names[device] == "CPU", device))
    affinity = {layer: names[device] for layer, device in affinities(problem, placement, model.path).items()}
    document = {"device": f"HETERO:{','.join(names[device] for device in used)}", "affinity": affinity}
    return json.dumps(document, indent=1) + "\n"


def assigned_openvino(problem: Problem, document: object, model: Model | None, trial: Trial | None) -> Placement:
    """The placement of affinities: those of an exported document, or a map from node to device.

    Raises ValueError as `of_ops` does. Layers that the graph lacks, folded ones and results, may be named.
    """
    what = "map from node to device, nor a document with an affinity"
    affinity = document.get("affinity", document) if isinstance(document, dict) else document
    devices, graph = checked(affinity, dict[str, str], what), problem.graph
    layers = {layer.name for layer in read_document(model.path).layers} if model is not None else set(graph.op_names)
    known_as(devices, sorted(layers), "layer")
    placed = [op for op in range(graph.num_ops) if graph.kind[op] != "Constant" and graph.op_names[op] in layers]
    ops = {graph.op_names[op]: op for op in placed}
    return of_ops(problem, {name: device for name, device in devices.items() if name in ops}, ops, "layer")


def openvino_devices(cluster: Cluster) -> list[str]:
    """The devices as OpenVINO names them: `CPU`, and others numbered within their kind (`GPU.0`); "" for an unknown
    kind.

    >>> import gnnplace as gp
    >>> openvino_devices(gp.problem("squeezenet", cluster="k40-2").cluster)
    ['CPU', 'GPU.0', 'GPU.1']
    """
    kinds = [KINDS.get(device.kind, "") for device in cluster.devices]
    return [kind if kind in ("CPU", "") else f"{kind}.{kinds[:index].count(kind)}" for index, kind in enumerate(kinds)]


def affinities(problem: Problem, placement: Placement, path: str) -> dict[str, int]:
    """The device of every layer, by its name. Raises ValueError if two layers have one name."""
    document = read_document(path)
    sources, order = wired(document)
    _check_names(path, document.layers)
    graph = problem.graph
    op = {name: index for index, name in enumerate(graph.op_names) if graph.kind[index] != "Constant"}
    device = [int(placement.device[op[layer.name]]) if layer.name in op else NONE for layer in document.layers]
    for index in reversed(order):  # readers first
        for source, _ in sources[index]:
            if device[source] == NONE and document.layers[index].kind != "Result":
                device[source] = device[index]
    for index in order:  # results, and layers that nothing reads
        if device[index] == NONE:
            device[index] = next((device[source] for source, _ in sources[index]), int(placement.device[0]))
    return {layer.name: device[index] for index, layer in enumerate(document.layers)}


def _check_devices(problem: Problem, placement: Placement, names: list[str]) -> None:
    """Raises UnsayableError for devices that OpenVINO lacks, and for several CPUs."""
    devices = sorted(set(placement.device.tolist()))
    absent = [problem.cluster.device_names[device] for device in devices if not names[device]]
    if absent:
        raise UnsayableError(
            f"openvino: has no such device, and ops stand on {listed(absent)}; place with --devices of CPU, GPU or NPU"
        )
    cpus = [problem.cluster.device_names[device] for device in devices if names[device] == "CPU"]
    if len(cpus) > 1:
        raise UnsayableError(
            f"openvino: has one CPU, and ops stand on {listed(cpus)}; place on a cluster with one CPU, or with "
            "--devices"
        )


def _check_names(path: str, layers: list[Layer]) -> None:
    """Raises ValueError for layers of one name."""
    repeated = [name for name, count in Counter(layer.name for layer in layers).items() if count > 1]
    if repeated:
        raise ValueError(
            f"{path}: several layers are called {listed(repeated)}; a node's affinity is given by its name"
        )
