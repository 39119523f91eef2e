"""`tf.function`s as graphs: calls inlined, variables kept, roles as in a graph without calls; flops counted by hand."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from support.tensorflow_graphs import flops_by_kind, inputs, mlp, of, read, root

from gnnplace.frontends.tensorflow.function import TensorFlowFunction, read_function
from gnnplace.graph import ComputationGraph

X, LABELS = tf.TensorSpec((8, 16)), tf.TensorSpec((8,), tf.int32)


@pytest.fixture(scope="module")
def step() -> ComputationGraph:
    """The step of `mlp`, its layers in functions of their own: 8 x 16 -> 32 -> relu -> 4 -> cross entropy."""
    first, second = tf.Variable(tf.zeros((16, 32)), name="first_kernel"), tf.Variable(tf.zeros((32, 4)), name="second_kernel")

    @tf.function
    def hidden(x):
        with tf.name_scope("cell"):
            return tf.nn.relu(tf.matmul(x, first))

    @tf.function
    def train(x, labels):
        with tf.GradientTape() as tape:
            with tf.name_scope("first"):
                h = hidden(x)
            with tf.name_scope("second"):
                logits = tf.matmul(h, second)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for variable, gradient in zip((first, second), tape.gradient(loss, (first, second)), strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=0.1, delta=gradient)
        return loss

    return read_function(train, X, LABELS, name="train", blocks={"first": 0, "second": 1})


def test_the_costs_are_those_of_the_same_step_without_functions(step):
    ours, other = flops_by_kind(step), flops_by_kind(read(mlp))
    expected = {"matmul": 2 * 8 * (16 * 32 * 2 + 32 * 4 * 3), "loss": 8 * 8 * 4, "update": 2 * (16 * 32 + 32 * 4)}
    expected |= {"activation": 8 * 32, "activation_grad": 8 * 32}
    assert {kind: ours[kind] for kind in expected} == {kind: other[kind] for kind in expected} == expected
    assert step.persistent_bytes.sum() == (16 * 32 + 32 * 4) * 4


def test_ops_of_a_called_function_stand_in_the_scope_of_its_call(step):
    layer, phase, block = of(step, "layer"), of(step, "phase"), of(step, "block")
    assert layer["first/cell/MatMul"] == "first/cell" and block["first/cell/MatMul"] == 0
    weight = "gradients/first/cell/MatMul_grad/MatMul_1"
    assert (layer[weight], phase[weight], block[weight]) == ("first/cell", "backward_weight", 0)
    assert phase["gradients/first/cell/Relu_grad/ReluGrad"] == "backward_data"
    assert phase["gradient_tape/second/MatMul/MatMul_1"] == "backward_weight"
    assert not any("Call" in kind for kind in step.kind.values)


def test_a_captured_variable_is_a_variable_in_the_scope_of_its_first_use(step):
    assert of(step, "layer")["first/cell/first_kernel"] == "first/cell"
    group = [name for name, group in of(step, "colocation").items() if group == "first/cell/first_kernel"]
    assert group == ["first/cell/first_kernel", "first/cell/MatMul/ReadVariableOp", "ResourceApplyGradientDescent"]
    assert root(step, "first/cell/MatMul/ReadVariableOp") == "first/cell/first_kernel"


def test_what_returns_is_a_result_and_what_changes_is_kept(step):
    results = [step.op_names[op] for op in step.output_op[step.output_is_result]]
    assert results == ["Identity"] and step.kind.among(["ResourceApplyGradientDescent"]).sum() == 2


def test_calls_of_one_function_share_its_variable_and_have_names_of_their_own():
    weight = tf.Variable(tf.zeros((4, 4)), name="w")

    @tf.function
    def cell(x):
        return tf.matmul(x, weight)

    @tf.function
    def twice(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(cell(cell(x)))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    graph = read_function(twice, tf.TensorSpec((2, 4)), name="twice")
    products = [graph.op_names[op] for op in np.flatnonzero(graph.kind.among(["MatMul"]))]
    assert {"MatMul", "StatefulPartitionedCall_1/MatMul"} <= set(products) and len(products) == 5  # no gradient of x
    assert graph.kind.among(["VarHandleOp"]).sum() == 1 and graph.kind.among(["ReadVariableOp"]).sum() == 1
    assert "MatMul/ReadVariableOp" in inputs(graph, "StatefulPartitionedCall_1/MatMul")
    assert of(graph, "phase")["AddN"] == "backward_weight"  # the tape adds both gradients outside its scope
    names = set(graph.op_names)
    assert {"gradients/MatMul_grad/MatMul_1", "gradients/StatefulPartitionedCall_1/MatMul_grad/MatMul_1"} <= names


def test_a_call_waits_and_is_waited_for():
    state = tf.Variable(tf.zeros(()), name="state")

    @tf.function
    def add():
        state.assign_add(1.0)

    @tf.function
    def both():
        state.assign(2.0)
        add()
        return state.read_value()

    graph = read_function(both, name="both")
    before, after, value = (single(graph, kind) for kind in ("AssignVariableOp", "AssignAddVariableOp", "ReadVariableOp"))
    assert before in ancestors(graph, after) and after in ancestors(graph, value)


def single(graph: ComputationGraph, kind: str) -> str:
    (op,) = np.flatnonzero(graph.kind.among([kind]))
    return graph.op_names[op]


def ancestors(graph: ComputationGraph, name: str) -> set[str]:
    found = {source for control in (False, True) for source in inputs(graph, name, control)}
    return found.union(*(ancestors(graph, source) for source in found))


def test_an_identity_of_many_does_not_join_them():
    graph = read_function(tf.function(lambda x, y: tf.identity_n([x * 2.0, y * 3.0])), X, X, name="n")
    assert "IdentityN" not in graph.kind.values and graph.kind.among(["Mul"]).sum() == 2


def test_slots_that_ops_update_have_the_layer_of_their_weight():
    weight, momentum = tf.Variable(tf.zeros((16, 4)), name="w"), tf.Variable(tf.zeros((16, 4)), name="momentum")

    @tf.function
    def train(x):
        with tf.GradientTape() as tape, tf.name_scope("dense"):
            loss = tf.reduce_sum(tf.matmul(x, weight))
        with tf.name_scope("sgd"):
            momentum.assign(0.9 * momentum + tape.gradient(loss, weight))
            weight.assign_sub(0.1 * momentum)
        return loss

    graph = read_function(train, X, name="train")
    layer = of(graph, "layer")
    assert layer["sgd/momentum"] == layer["sgd/AssignVariableOp"] == layer["sgd/AssignSubVariableOp"] == "dense"


def test_a_captured_tensor_is_an_input():
    table = tf.zeros((16, 20))
    graph = read_function(tf.function(lambda x: tf.matmul(x, table)), X, name="captures")
    assert graph.kind.among(["Placeholder"]).sum() == 2 and graph.flops.sum() == 2 * 8 * 16 * 20


def test_a_function_described_and_one_that_is_traced_already():
    traced = tf.function(lambda x: tf.nn.relu(x)).get_concrete_function(X)
    described = TensorFlowFunction(traced).computation_graph("relu")
    assert described.name == "relu" and described.sha256 == read_function(traced, name="relu").sha256
    assert TensorFlowFunction(tf.nn.relu, (X,)).computation_graph("relu").flops.sum() == 8 * 16


@tf.function
def branch(x):
    return x if tf.reduce_sum(x) > 0 else -x


@tf.function
def loop(x):
    for _ in tf.range(3):
        x = x * 2.0
    return x


def table():
    values = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2]), tf.constant([3, 4]))
    return tf.lookup.StaticHashTable(values, 0).lookup


REFUSED = {
    "a branch": (lambda: branch, X, "op 'cond': a step must be flat, but StatelessIf is a branch; decide by a Python value"),
    "a loop": (lambda: loop, X, "op 'while': a step must be flat, but StatelessWhile is a loop; unroll it"),
    "an open dimension": (lambda: tf.nn.relu, tf.TensorSpec((None, 2)), "its shape (None, 2) is not static"),
    "a table": (table, LABELS, "a resource that is no variable (a table, an iterator)"),
    "nothing": (lambda: lambda x: None, X, "function: returns no tensor and changes no variable"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    made, spec, message = REFUSED[what]
    with pytest.raises(ValueError) as error:
        read_function(made(), spec, name="refused")
    assert message in str(error.value) and "\n" not in str(error.value)
