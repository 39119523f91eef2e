"""Layers of the recurrent workloads, unrolled by hand: LSTM, embedding and a dense layer; each variable is read once a step.

Name scopes carry what the front-end reads off them: `<layer>/step_<t>/<op>`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

v1 = tf.compat.v1


def read(layer: str, name: str, shape: Sequence[int]) -> tf.Tensor:
    """The value of a new variable `name` of `layer`, for all its uses."""
    with tf.name_scope(f"{layer}/"):
        return variable(f"{layer}/{name}", shape).value()


def variable(name: str, shape: Sequence[int], trainable: bool = True) -> tf.Variable:
    """A float32 resource variable `name` (scopes included) of `shape`."""
    return v1.get_variable(
        name, shape, use_resource=True, trainable=trainable, initializer=v1.random_uniform_initializer(-0.1, 0.1, seed=1)
    )


def lstm(layer: str, batch: int, inputs: int, units: int) -> Callable[[tf.Tensor, int], tf.Tensor]:
    """The LSTM layer `layer` as a function (input `[batch, inputs]`, time step) -> output `[batch, units]`; its state starts at zero.

    Gates in the order input, candidate, forget, output; forget bias 1 (Zaremba et al., 2014).
    """
    kernel = read(layer, "kernel", (inputs + units, 4 * units))
    bias = read(layer, "bias", (4 * units,))
    with tf.name_scope(f"{layer}/"):
        state = [tf.zeros((batch, units)), tf.zeros((batch, units))]  # cell, output

    def step(x: tf.Tensor, time: int) -> tf.Tensor:
        with tf.name_scope(f"{layer}/step_{time}/"):
            gates = tf.nn.bias_add(tf.matmul(tf.concat([x, state[1]], axis=1), kernel), bias)
            take, candidate, keep, show = tf.split(gates, 4, axis=1)
            state[0] = state[0] * tf.sigmoid(keep + 1.0) + tf.sigmoid(take) * tf.tanh(candidate)
            state[1] = tf.tanh(state[0]) * tf.sigmoid(show)
        return state[1]

    return step


def embedding(layer: str, tokens: tf.Tensor, vocabulary: int, units: int) -> list[tf.Tensor]:
    """One look-up a time step: tokens `[steps, batch]` -> a `[batch, units]` for each step."""
    table = variable(f"{layer}/table", (vocabulary, units))
    rows = []
    for time in range(tokens.shape[0]):
        with tf.name_scope(f"{layer}/step_{time}/"):
            rows.append(tf.raw_ops.ResourceGather(resource=table.handle, indices=tokens[time], dtype=tf.float32))
    return rows


def softmax_losses(layer: str, hidden: Sequence[tf.Tensor], targets: tf.Tensor, vocabulary: int) -> tf.Tensor:
    """The mean cross entropy of a softmax over the vocabulary at each time step; `targets` is `[steps, batch]`."""
    weight = read(layer, "kernel", (hidden[0].shape[1], vocabulary))
    bias = read(layer, "bias", (vocabulary,))
    losses = []
    for time, h in enumerate(hidden):
        with tf.name_scope(f"{layer}/step_{time}/"):
            logits = tf.nn.bias_add(tf.matmul(h, weight), bias)
            losses.append(tf.reduce_mean(tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=targets[time]).loss))
    with tf.name_scope(f"{layer}/"):
        return tf.add_n(losses) / len(losses)
