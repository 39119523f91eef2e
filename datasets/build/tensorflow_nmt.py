"""NMT: an LSTM encoder and decoder with attention, one training step (Luong et al., 2015; sizes of Mirhoseini et al., 2017).

`layers` LSTM layers of 1,024 on each side, source and target of 40 word pieces, batch 64, vocabulary 32,000, Adam. The encoder is
unidirectional, as in the papers' description (GNMT's bidirectional first layer is not mentioned there). The decoder is fed the attention
vector of the step before; scores are products with the projected encoder outputs; a softmax at each step. No dropout, no clipping.
"""

from __future__ import annotations

import tensorflow as tf

from datasets.build.tensorflow_adam import minimize
from datasets.build.tensorflow_lstm import embedding, lstm, read, softmax_losses


def build(layers: int = 2, units: int = 1024, steps: int = 40, batch: int = 64, vocabulary: int = 32_000) -> tuple[tf.Tensor, tf.Operation]:
    """The loss and the train op, in the default graph."""
    source, inputs, targets = (
        tf.compat.v1.placeholder(tf.int32, (steps, batch), f"input/{name}") for name in ("source", "inputs", "targets")
    )
    hidden = embedding("encoder/embedding", source, vocabulary, units)
    for layer in range(layers):
        step = lstm(f"encoder/lstm_{layer}", batch, units, units)
        hidden = [step(x, time) for time, x in enumerate(hidden)]
    outputs = _decode(layers, hidden, embedding("decoder/embedding", inputs, vocabulary, units))
    loss = softmax_losses("decoder/softmax", outputs, targets, vocabulary)
    return loss, minimize(loss, tf.compat.v1.trainable_variables())


def blocks(layers: int = 2) -> dict[str, int]:
    """The LSTM layer with which an expert places each layer: embeddings with the first, attention and softmax with the last."""
    first, last = ("input", "encoder/embedding", "decoder/embedding"), ("decoder/attention", "decoder/softmax")
    sides = {f"{side}/lstm_{layer}": layer for side in ("encoder", "decoder") for layer in range(layers)}
    return dict.fromkeys(first, 0) | dict.fromkeys(last, layers - 1) | sides


def _decode(layers: int, encoded: list[tf.Tensor], embedded: list[tf.Tensor]) -> list[tf.Tensor]:
    """The attention vector `[batch, units]` of each decoder step."""
    batch, units = encoded[0].shape
    steps = [lstm(f"decoder/lstm_{layer}", batch, units * (2 if layer == 0 else 1), units) for layer in range(layers)]
    query = read("decoder/attention", "query_kernel", (2 * units, units))
    with tf.name_scope("decoder/attention/"):
        memory = tf.stack(encoded, axis=1)  # [batch, source, units]
        projection = read("decoder/attention", "memory_kernel", (units, units))
        keys = tf.reshape(tf.matmul(tf.reshape(memory, (-1, units)), projection), memory.shape)
        attention = tf.zeros((batch, units))
    vectors = []
    for time, x in enumerate(embedded):
        with tf.name_scope(f"decoder/lstm_0/step_{time}/"):
            hidden = tf.concat([x, attention], axis=1)
        for step in steps:
            hidden = step(hidden, time)
        attention = _attend(hidden, keys, memory, query, time)
        vectors.append(attention)
    return vectors


def _attend(hidden: tf.Tensor, keys: tf.Tensor, memory: tf.Tensor, kernel: tf.Tensor, time: int) -> tf.Tensor:
    """Luong's multiplicative attention: `tanh(W [context; hidden])`."""
    with tf.name_scope(f"decoder/attention/step_{time}/"):
        scores = tf.matmul(keys, tf.expand_dims(hidden, 2))  # [batch, source, 1]
        weights = tf.nn.softmax(tf.squeeze(scores, axis=2))
        context = tf.squeeze(tf.matmul(tf.expand_dims(weights, 1), memory), axis=1)
        return tf.tanh(tf.matmul(tf.concat([context, hidden], axis=1), kernel))
