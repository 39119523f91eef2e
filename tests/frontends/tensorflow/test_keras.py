"""Keras models as graphs: inference and whole training steps, their costs counted by hand."""

import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf
from support.tensorflow_graphs import flops_by_kind, of

from gnnplace.frontends.tensorflow.keras import KerasModel, read_keras
from gnnplace.graph import ComputationGraph

X, LABELS = tf.TensorSpec((8, 16)), tf.TensorSpec((8,), tf.int32)
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def perceptron(optimizer: str) -> keras.Model:
    """[8, 16] -> 32 -> relu -> 4, without biases."""
    layers = [keras.layers.Dense(32, "relu", use_bias=False, name="first"), keras.layers.Dense(4, use_bias=False, name="second")]
    model = keras.Sequential([keras.Input((16,)), *layers], name="mlp")
    model.compile(optimizer, CROSS_ENTROPY)
    return model


@pytest.fixture(scope="module")
def step() -> ComputationGraph:
    return read_keras(perceptron("adam"), X, LABELS, name="step", blocks={"mlp/first": 0, "mlp/second": 1})


def test_flops_and_memory_of_a_training_step(step):
    weights = 16 * 32 + 32 * 4
    flops = flops_by_kind(step)
    assert flops["matmul"] == 2 * 8 * (16 * 32 * 2 + 32 * 4 * 3)  # no gradient of the input
    assert flops["activation"] == flops["activation_grad"] == 8 * 32 and flops["loss"] == 8 * 8 * 4
    assert flops["update"] == 3 * weights  # two slots and the weights, an addition an element each
    assert step.persistent_bytes.sum() == 3 * weights * 4 + 8 + 4  # Adam's moments; the iteration and the rate


def test_layers_are_those_of_keras_for_slots_and_updates_too(step):
    layer, block, kind = of(step, "layer"), of(step, "block"), of(step, "kind")
    layers = {name: layer[name] for name, op in kind.items() if op == "VarHandleOp" and "adam/mlp" in name}
    assert {name.removeprefix("adam/mlp_").partition("_")[0]: found for name, found in layers.items()} == {
        "first": "mlp/first", "second": "mlp/second",
    }  # fmt: skip
    assert len(layers) == 4
    assert layer["mlp/first/MatMul"] == "mlp/first" and block["mlp/first/MatMul"] == 0
    gradient = "gradient_tape/mlp/second/MatMul/MatMul_1"
    assert (layer[gradient], block[gradient], of(step, "phase")[gradient]) == ("mlp/second", 1, "backward_weight")
    assert {layer[name] for name, op in kind.items() if op == "AssignSubVariableOp"} == {"mlp/first", "mlp/second"}


def test_a_gradient_does_not_wait_for_all_others(step):
    assert "IdentityN" not in step.kind.values


def test_inference_is_the_forward_pass_alone():
    graph = read_keras(perceptron("adam"), X, name="inference")
    assert flops_by_kind(graph) == {"matmul": 2 * 8 * (16 * 32 + 32 * 4), "activation": 8 * 32}
    assert set(graph.phase.values) <= {"forward", "other"} and graph.persistent_bytes.sum() == (16 * 32 + 32 * 4) * 4


def test_attention_has_its_products():
    """2 heads of 4 over 6 positions of width 8: projections 8 -> 8 three times, scores, mixing, and the output's."""
    x = keras.Input((6, 8))
    model = keras.Model(x, keras.layers.MultiHeadAttention(2, 4, use_bias=False)(x, x))
    graph = read_keras(model, tf.TensorSpec((3, 6, 8)), name="attention")
    flops = flops_by_kind(graph)
    tokens, scores = 3 * 6, 3 * 2 * 6 * 6
    assert flops.get("matmul", 0) + flops["batch_matmul"] == 2 * (tokens * 8 * 8 * 4 + scores * 4 * 2)
    model.compile("sgd", "mse")
    trained = flops_by_kind(read_keras(model, tf.TensorSpec((3, 6, 8)), tf.TensorSpec((3, 6, 8)), name="attention"))
    inner = 3 * 2 * tokens * 8 * 8  # projections of the input have no gradient but of their weights
    assert trained.get("matmul", 0) + trained["batch_matmul"] == 3 * (flops.get("matmul", 0) + flops["batch_matmul"]) - inner


def test_an_unrolled_recurrent_model_with_an_embedding_trains():
    layers = [keras.layers.Embedding(50, 8), keras.layers.LSTM(8, unroll=True, use_bias=False), keras.layers.Dense(3, use_bias=False)]
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *layers])
    model.compile("rmsprop", CROSS_ENTROPY)
    graph = read_keras(model, tf.TensorSpec((4, 6), tf.int32), tf.TensorSpec((4,), tf.int32), name="lstm")
    forward = 2 * 4 * (6 * (8 * 32 + 8 * 32) + 8 * 3)
    first_state = 2 * 4 * 8 * 32  # the first state is zero and has no gradient
    assert flops_by_kind(graph)["matmul"] == 3 * forward - first_state
    weights = 50 * 8 + 2 * 8 * 32 + 8 * 3
    assert graph.persistent_bytes.sum() == 2 * weights * 4 + 8 + 4  # RMSProp's mean squares


def test_a_model_of_many_inputs_by_name():
    left, right = keras.Input((4,), name="left"), keras.Input((4,), name="right")
    model = keras.Model({"left": left, "right": right}, {"sum": left + right, "product": left * right})
    shapes = {"left": tf.TensorSpec((2, 4)), "right": keras.KerasTensor((2, 4))}
    graph = KerasModel(model, shapes).computation_graph("two")
    assert graph.flops.sum() == 2 * 2 * 4 and graph.output_is_result.sum() == 2


class Own(keras.Model):
    def call(self, x):
        return x

    def train_step(self, data):
        return {}


def own() -> keras.Model:
    model = Own()
    model.compile("sgd", "mse")
    return model


def recurrent() -> keras.Model:
    return keras.Sequential([keras.Input((6, 4)), keras.layers.LSTM(8)])


REFUSED = {
    "a model that is not compiled": (recurrent, (3, 6, 4), True, "model: is not compiled"),
    "a step of its own": (own, (3, 4), True, "model: Own has a train_step of its own; write the step as a tf.function"),
    "a loop": (recurrent, (3, 6, 4), False, "unroll=True for Keras' recurrent layers"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    made, shape, trained, message = REFUSED[what]
    with pytest.raises(ValueError) as error:
        read_keras(made(), tf.TensorSpec(shape), tf.TensorSpec(shape) if trained else None, name="refused")
    assert message in str(error.value)


def test_the_model_is_left_as_it_was():
    model = perceptron("sgd")
    before = [weight.numpy() for weight in model.weights]
    read_keras(model, X, LABELS, name="step")
    assert all((weight.numpy() == old).all() for weight, old in zip(model.weights, before, strict=True))
    assert "call" not in vars(model) and not any("call" in vars(layer) for layer in model.layers)
