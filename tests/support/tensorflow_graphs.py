"""Small TensorFlow steps as graphs, and what tests ask of a graph's ops by name."""

from __future__ import annotations

import tensorflow as tf

from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.graph import CONTROL, ComputationGraph

v1 = tf.compat.v1


def variable(name: str, *shape: int) -> tf.Variable:
    return v1.get_variable(name, shape, use_resource=True)


def descend(loss: tf.Tensor, variables: list) -> tf.Operation:
    """Plain gradient descent, one kernel a variable."""
    gradients = v1.gradients(loss, variables)
    updates = [tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.1, delta=g) for v, g in zip(variables, gradients, strict=True)]
    return tf.group(*updates, name="train")


def mlp() -> tuple[tf.Tensor, tf.Operation]:
    """[8, 16] -> 32 -> relu -> 4 -> cross entropy, no biases."""
    x, labels = v1.placeholder(tf.float32, (8, 16), "x"), v1.placeholder(tf.int32, (8,), "labels")
    first, second = variable("first/kernel", 16, 32), variable("second/kernel", 32, 4)
    with tf.name_scope("first/"):
        hidden = tf.nn.relu(tf.matmul(x, first.value()))
    with tf.name_scope("second/"):
        logits = tf.matmul(hidden, second.value())
        loss = tf.reduce_mean(tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels).loss)
    return loss, descend(loss, [first, second])


def read(build, blocks=None) -> ComputationGraph:
    with tf.Graph().as_default() as graph:
        fetches = build()
    return read_step(graph, [fetch.name for fetch in fetches], "step", blocks)


def of(graph: ComputationGraph, column: str) -> dict:
    """A column of the graph by op name."""
    values = getattr(graph, column)
    return {name: values[i] for i, name in enumerate(graph.op_names)}


def inputs(graph: ComputationGraph, name: str, control: bool = False) -> list[str]:
    op = graph.op_names.index(name)
    edges = (graph.edge_dst == op) & ((graph.edge_output == CONTROL) == control)
    return [graph.op_names[src] for src in graph.edge_src[edges]]


def root(graph: ComputationGraph, name: str, output: int = 0) -> str:
    return graph.op_names[graph.output_op[graph.output_root[graph.output_ptr[graph.op_names.index(name)] + output]]]


def output_bytes(graph: ComputationGraph, name: str) -> list[int]:
    op = graph.op_names.index(name)
    return graph.output_bytes[graph.output_ptr[op] : graph.output_ptr[op + 1]].tolist()


def flops_by_kind(graph: ComputationGraph) -> dict[str, int]:
    kinds = {kind for kind in graph.canonical_kind.values if graph.flops[graph.canonical_kind.among([kind])].any()}
    return {kind: int(graph.flops[graph.canonical_kind.among([kind])].sum()) for kind in kinds}
