"""The graph that TensorFlow runs: the computation graph, op by op and edge by edge, under the same names.

`runnable` makes a node for each op of the pruned step, with exactly its edges. A variable is read once (as in
`read_step`). A placeholder is a constant, which stays on its device. An op that only reads static shapes is a constant,
which waits for the op's inputs. An op that reads a shape known only in the step keeps its data input, an edge that the
computation graph lacks: `Runnable.differences` names it. The plan decides devices, so colocations (`_class`) are
removed.

`placed` adds devices and order. A control edge leads from each op to the next op of its device. A core sends an op's
outputs to other cores before it begins its next op: sends and receipts are explicit nodes there. Nothing would wait for
the sends that TensorFlow would add, and a busy core would delay them by milliseconds. From and to GPUs TensorFlow
itself adds sends. A constant that another device needs becomes the identity of a constant, so that it is sent like any
tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import tensorflow as tf

from gnnplace.execution.control_edges import needed
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.tensorflow.kinds import SHAPE_READERS
from gnnplace.frontends.tensorflow.pruned import PrunedStep
from gnnplace.graph import ComputationGraph

EXTRA = "gnnplace"  # the scope of added nodes


@dataclass(frozen=True, eq=False)
class Runnable:
    """The nodes of a step without devices."""

    nodes: tuple[tf.compat.v1.NodeDef, ...]  # in the order of the step's ops
    helpers: Mapping[str, int]  # the op that each extra node serves
    extra: tuple[tf.compat.v1.NodeDef, ...]
    differences: tuple[str, ...]  # the ops with an edge that the computation graph lacks
    versions: tf.compat.v1.GraphDef  # only its versions
    types: Mapping[str, int]  # of tensors by name


def runnable(step: PrunedStep, inputs: Mapping[str, np.ndarray]) -> Runnable:
    """The nodes of a step. `inputs` are the values of placeholders by name."""
    nodes, extra, differences = [], [], []
    helpers: dict[str, int] = {}
    for i, op in enumerate(step.ops):
        node, shapes = tf.compat.v1.NodeDef(name=op.name, op=op.type), _shapes(op)
        sources = [_tensor(step, src, output) for src, output in step.inputs[i]]
        if op.type == "Placeholder":
            node = _constant(op.name, inputs[op.name])
        elif shapes is not None and len(shapes) == 1:
            node = _constant(op.name, shapes[0])
        elif shapes is not None:  # one constant an output
            constants = [_constant(f"{EXTRA}/shape/{op.name}/{k}", shape) for k, shape in enumerate(shapes)]
            extra += constants
            helpers |= dict.fromkeys((constant.name for constant in constants), i)
            sources = [constant.name for constant in constants]
            node.op = "IdentityN"
            node.attr["T"].list.type.extend(constant.attr["dtype"].type for constant in constants)
        else:
            node.CopyFrom(op.node_def)
            if op.type in SHAPE_READERS:
                sources = [_tensor(step, step.index[tensor.op.name], tensor.value_index) for tensor in op.inputs]
                differences.append(op.name)
        node.attr.pop("_class", None)
        del node.input[:]
        node.input.extend([*sources, *(f"^{step.ops[src].name}" for src in step.controls[i])])
        nodes.append(node)
    versions = tf.compat.v1.GraphDef(versions=step.ops[0].graph.graph_def_versions)
    types = {f"{op.name}:{k}": tensor.dtype.as_datatype_enum for op in step.ops for k, tensor in enumerate(op.outputs)}
    return Runnable(tuple(nodes), helpers, tuple(extra), tuple(differences), versions, types)


def placed(
    step: Runnable, computation: ComputationGraph, plan: ExecutionPlan, devices: Sequence[str]
) -> tf.compat.v1.GraphDef:
    """The step with every node on its device, and the ops of each device in the order of the plan.

    `devices` are TensorFlow's names. Control edges between devices that this order implies are left out
    (control_edges.py). `{EXTRA}/done/{d}` runs when device `d` has finished. Before the graph runs, `incarnations` must
    set which devices have these names.
    """
    graph = tf.compat.v1.GraphDef()
    graph.CopyFrom(step.versions)
    nodes = [_on(graph, node, devices[plan.device[i]]) for i, node in enumerate(step.nodes)]
    for node in step.extra:
        _on(graph, node, devices[plan.device[step.helpers[node.name]]])
    for edge in np.flatnonzero(~needed(computation, plan.device, plan.order)).tolist():
        nodes[computation.edge_dst[edge]].input.remove(f"^{nodes[computation.edge_src[edge]].name}")
    sends = _send(graph, nodes, plan, step.types)
    device_of = {node.name: node.device for node in graph.node}
    sent = {source for node in nodes for source in map(_source, node.input) if device_of[source] != node.device}
    for node in nodes:
        if node.op == "Const" and node.name in sent:
            _keep(graph, node)
    for d, last in _order(nodes, sends, plan).items():
        graph.node.add(name=f"{EXTRA}/done/{d}", op="NoOp", device=devices[d], input=[f"^{last}"])
    return graph


def incarnations(graph: tf.compat.v1.GraphDef, device_incarnations: Mapping[str, int]) -> None:
    """Sets the incarnation of the sending device in every send and receive node; the mapping is by device name."""
    for node in graph.node:
        if node.op in ("_Send", "_Recv"):
            node.attr["send_device_incarnation"].i = device_incarnations[node.attr["send_device"].s.decode()]


def _on(graph: tf.compat.v1.GraphDef, node: tf.compat.v1.NodeDef, device: str) -> tf.compat.v1.NodeDef:
    """A copy of a node, added to a graph on a device."""
    copy = graph.node.add()
    copy.CopyFrom(node)
    copy.device = device
    return copy


def _keep(graph: tf.compat.v1.GraphDef, node: tf.compat.v1.NodeDef) -> None:
    """Turns a constant into the Identity of one. TensorFlow would copy a small constant to each reader's device."""
    constant = _on(graph, node, node.device)
    constant.name = f"{EXTRA}/constant/{node.name}"
    del constant.input[:]
    controls = list(node.input)
    node.CopyFrom(
        tf.compat.v1.NodeDef(name=node.name, op="Identity", device=node.device, input=[constant.name, *controls])
    )
    node.attr["T"].type = constant.attr["dtype"].type


def _send(
    graph: tf.compat.v1.GraphDef, nodes: Sequence[tf.compat.v1.NodeDef], plan: ExecutionPlan, types: Mapping[str, int]
) -> Mapping[str, Sequence[str]]:
    """Sends each tensor once to every other core that needs it; the consumers there read the received tensor.

    An op that another core waits for sends an empty tensor. Returns the sends of each op: by output, then by
    destination, control last.
    """
    node_by_name = {node.name: node for node in nodes}
    crossing = []
    for i in plan.order.tolist():
        for k, tensor in enumerate(nodes[i].input):
            source = node_by_name.get(_source(tensor))
            if source is not None and source.device != nodes[i].device and "GPU" not in source.device + nodes[i].device:
                turn = tensor.startswith("^"), int(tensor.partition(":")[2] or 0), int(plan.device[i])
                crossing.append((turn, source, nodes[i], k))
    sends: dict[str, list[str]] = defaultdict(list)
    received: dict[tuple[str, str], str] = {}
    for (control, *_), source, node, k in sorted(crossing, key=itemgetter(0)):
        tensor = node.input[k]
        if (tensor, node.device) not in received:
            send, receipt = _transfer(graph, source, tensor, node.device, types)
            send.input.extend(f"^{before}" for before in sends[source.name][-1:])
            sends[source.name].append(send.name)
            received[tensor, node.device] = receipt.name
        node.input[k] = "^" * control + received[tensor, node.device]
    return sends


def _transfer(
    graph: tf.compat.v1.GraphDef, source: tf.compat.v1.NodeDef, tensor: str, device: str, types: Mapping[str, int]
) -> tuple[tf.compat.v1.NodeDef, tf.compat.v1.NodeDef]:
    """A send and its receipt. `tensor` is written as in a node's inputs."""
    name = f"{tensor.lstrip('^').replace(':', '/')}{'/done' * tensor.startswith('^')}{device.replace(':', '_')}"
    if tensor.startswith("^"):
        empty = _on(graph, _constant(f"{EXTRA}/empty/{name}", np.zeros(0, dtype=np.float32)), source.device)
        empty.input.append(tensor)
        tensor, dtype = empty.name, int(tf.float32.as_datatype_enum)
    else:
        dtype = types[tensor]
    send = graph.node.add(name=f"{EXTRA}/send/{name}", op="_Send", device=source.device, input=[tensor])
    receipt = graph.node.add(name=f"{EXTRA}/receive/{name}", op="_Recv", device=device)
    send.attr["T"].type = receipt.attr["tensor_type"].type = dtype
    for node in (send, receipt):
        node.attr["tensor_name"].s = tensor.encode()
        node.attr["send_device"].s, node.attr["recv_device"].s = source.device.encode(), device.encode()
        node.attr["client_terminated"].b = False
    return send, receipt


def _order(
    nodes: Sequence[tf.compat.v1.NodeDef], sends: Mapping[str, Sequence[str]], plan: ExecutionPlan
) -> Mapping[int, str]:
    """Makes each node wait for the previous node of its device and for that node's sends.

    Returns the last node of each device.
    """
    last: dict[int, str] = {}
    for i in plan.order.tolist():
        device, node = int(plan.device[i]), nodes[i]
        before = last.get(device)
        if before is not None and before not in map(_source, node.input):
            node.input.append(f"^{before}")
        last[device] = (sends.get(node.name) or [node.name])[-1]
    return last


def _source(name: str) -> str:
    """The name of the node that an input refers to: `a` for `^a` and `a:1`."""
    return name.removeprefix("^").split(":")[0]


def _tensor(step: PrunedStep, src: int, output: int) -> str:
    return f"{step.ops[src].name}:{output}"


def _constant(name: str, value: np.ndarray) -> tf.compat.v1.NodeDef:
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return node


def _shapes(op: tf.Operation) -> list[np.ndarray] | None:
    """The outputs of an op that only reads shapes; None for another op, and if a shape isn't known before the step."""
    if op.type not in SHAPE_READERS:
        return None
    shapes = [_static_shape(tensor) for tensor in op.inputs]
    if not all(shape.is_fully_defined() for shape in shapes):
        return None
    measure = {"Size": lambda shape: shape.num_elements(), "Rank": lambda shape: shape.rank}.get(
        op.type, lambda shape: shape.as_list()
    )
    return [np.array(measure(shape), out.dtype.as_numpy_dtype) for shape, out in zip(shapes, op.outputs, strict=True)]


def _static_shape(tensor: tf.Tensor) -> tf.TensorShape:
    return tf.TensorShape(tensor.op.get_attr("shape")) if tensor.dtype == tf.resource else tensor.shape
