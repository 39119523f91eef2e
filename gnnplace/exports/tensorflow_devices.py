"""Devices of TensorFlow's ops: as JSON, as a device function for graphs and `tf.function`s, and in the placed GraphDef.

TensorFlow expresses any placement. An op that was pruned from the step has no device: TensorFlow puts it with its
resources and inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gnnplace.cluster import Cluster
from gnnplace.exports import model_files
from gnnplace.exports.assignments import checked, of_ops
from gnnplace.exports.targets import Model, check_same
from gnnplace.exports.trial import Trial
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import UnsayableError, listed

OTHERS = (".onnx", ".xml")  # files of other programs
GRAPHDEF = (".pb", ".pbtxt")
FUNCTION = Path(model_files.__file__).with_name("device_function.py")


def tensorflow(problem: Problem, placement: Placement, model: Model | None) -> dict[str, str | bytes]:
    """The files of a folder: `devices.json`, `device_function.py`, and `graph.pb` if the model is a GraphDef."""
    _check_kinds(problem, model)
    devices = op_devices(problem, placement)
    files: dict[str, str | bytes] = {
        "devices.json": json.dumps(devices, indent=1) + "\n",
        FUNCTION.name: FUNCTION.read_text(),
    }
    if model is not None and Path(model.path).suffix in GRAPHDEF:
        files["graph.pb"] = placed_graphdef(problem, model, devices)
    return files


def op_devices(problem: Problem, placement: Placement) -> dict[str, str]:
    """The device string of every op.

    >>> import gnnplace as gp
    >>> problem = gp.problem("nmt-2", cluster="k40-2")
    >>> op_devices(problem, gp.place(problem, "gpu"))["input/targets"]
    '/device:GPU:0'
    """
    names = device_strings(problem.cluster)
    return {op: names[device] for op, device in zip(problem.graph.op_names, placement.device.tolist(), strict=True)}


def assigned_tensorflow(problem: Problem, document: object, model: Model | None, trial: Trial | None) -> Placement:
    """The placement of a map from op to device string. Raises ValueError as `of_ops` does."""
    devices = checked(document, dict[str, str], "map from op to device string")
    return of_ops(problem, devices, {name: op for op, name in enumerate(problem.graph.op_names)}, "op of the graph")


def device_strings(cluster: Cluster) -> list[str]:
    """The devices as TensorFlow names them: numbered within their kind, in the order of the cluster."""
    kinds = [device.kind.upper() for device in cluster.devices]
    return [f"/device:{kind}:{kinds[:index].count(kind)}" for index, kind in enumerate(kinds)]


def placed_graphdef(problem: Problem, model: Model, devices: Mapping[str, str]) -> bytes:
    """The binary GraphDef. Unknown dimensions of placeholders have the sizes of the placed graph.

    This process parses the file only after a child process has read it within limits. Raises ValueError if the model
    is not the placed one.
    """
    from gnnplace.frontends.tensorflow.graphdef import read_graphdef
    from gnnplace.frontends.tensorflow.graphdef_child import checked, parsed  # TensorFlow takes seconds to import

    check_same(read_graphdef(model.path, model.dims, model.fetches, problem.graph.name), problem.graph, model)
    graph = checked(parsed(Path(model.path)), model.dims).graph
    for node in graph.node:
        node.device = devices.get(node.name, "")
    content: bytes = graph.SerializeToString(deterministic=True)
    return content


def _check_kinds(problem: Problem, model: Model | None) -> None:
    """Raises UnsayableError for a graph of another framework."""
    if model is not None and Path(model.path).suffix in OTHERS:
        raise UnsayableError(
            f"tensorflow: {model.path} is no graph of TensorFlow; {Path(model.path).suffix} goes to another target"
        )
    graph = problem.graph
    strange = [
        f"{name} ({graph.kind[op]})"
        for op, name in enumerate(graph.op_names)
        if not (graph.kind[op] or "")[:1].isupper()
    ]
    if strange:
        raise UnsayableError(
            f"tensorflow: {listed(strange)} are no ops of TensorFlow; place a graph that was read from TensorFlow or "
            "Keras"
        )
