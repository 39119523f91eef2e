"""GNMT: LSTM encoder and decoder, deep by residual connections, one training step (Wu et al., 2016, section 3).

`layers` layers of 1,024 on each side (8 in the paper; 2, 4 and 8 in Zhou et al., 2020), source and target of 40 word pieces, batch 64,
vocabulary 32,000, Adam. The first encoder layer reads the source both ways (1,024 units each, joined); from the third layer of a side
on, a layer's input is added to its output. Attention is a network with one hidden layer of 1,024, asked by the bottom decoder
layer's output of the step before; its context goes to all decoder layers. States start at zero. No dropout, no clipping.

8 layers have 280.8 million parameters (Shazeer et al., 2017, table 2: 278 million), 215.3 of them beside the embeddings (there: 214
million multiply-adds a time step). They make 36,471 ops; Zhou et al. name more than 80,000 for theirs, but no sizes: here a variable is
read once a step, not at each use, and the steps of source and target are 40.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from datasets.build.tensorflow_adam import minimize
from datasets.build.tensorflow_lstm import embedding, lstm, read, softmax_losses

RESIDUAL = 2  # the first layer whose input is added to its output: the third


def build(layers: int = 8, units: int = 1024, steps: int = 40, batch: int = 64, vocabulary: int = 32_000) -> tuple[tf.Tensor, tf.Operation]:
    """The loss and the train op, in the default graph."""
    source, inputs, targets = (
        tf.compat.v1.placeholder(tf.int32, (steps, batch), f"input/{name}") for name in ("source", "inputs", "targets")
    )
    encoded = _encode(layers, embedding("encoder/embedding", source, vocabulary, units))
    outputs = _decode(layers, encoded, embedding("decoder/embedding", inputs, vocabulary, units))
    loss = softmax_losses("decoder/softmax", outputs, targets, vocabulary)
    return loss, minimize(loss, tf.compat.v1.trainable_variables())


def blocks(layers: int = 8) -> dict[str, int]:
    """The LSTM layer with which an expert places each layer: embeddings and attention with the first, the softmax with the last."""
    first = ("input", "encoder/embedding", "decoder/embedding", "decoder/attention")
    sides = {f"{side}/lstm_{layer}": layer for side in ("encoder", "decoder") for layer in range(layers)}
    return dict.fromkeys(first, 0) | {"decoder/softmax": layers - 1} | sides


def _encode(layers: int, embedded: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The top layer's output `[batch, units]` at each source step."""
    hidden = _both_ways("encoder/lstm_0", embedded)
    for layer in range(1, layers):
        scope = f"encoder/lstm_{layer}"
        step = lstm(scope, *hidden[0].shape, embedded[0].shape[1])
        hidden = [_deepened(scope, layer, time, x, step(x, time)) for time, x in enumerate(hidden)]
    return hidden


def _both_ways(scope: str, embedded: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """`[batch, 2 units]` at each source step: what a layer has read up to it and, from the end backwards, down to it."""
    batch, units = embedded[0].shape
    onwards, backwards = (lstm(f"{scope}/{way}", batch, units, units) for way in ("onwards", "backwards"))
    read_on = [onwards(x, time) for time, x in enumerate(embedded)]
    read_back = {time: backwards(embedded[time], time) for time in reversed(range(len(embedded)))}
    joined = []
    for time, x in enumerate(read_on):
        with tf.name_scope(f"{scope}/step_{time}/"):
            joined.append(tf.concat([x, read_back[time]], axis=1))
    return joined


def _decode(layers: int, encoded: Sequence[tf.Tensor], embedded: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The top layer's output `[batch, units]` at each target step."""
    batch, units = encoded[0].shape
    scopes = [f"decoder/lstm_{layer}" for layer in range(layers)]
    steps = [lstm(scope, batch, 2 * units, units) for scope in scopes]
    attend = _attention("decoder/attention", encoded)
    with tf.name_scope(f"{scopes[0]}/"):
        bottom = tf.zeros((batch, units))
    outputs = []
    for time, hidden in enumerate(embedded):
        context = attend(bottom, time)
        for layer, (scope, step) in enumerate(zip(scopes, steps, strict=True)):
            with tf.name_scope(f"{scope}/step_{time}/"):
                fed = tf.concat([hidden, context], axis=1)
            hidden = _deepened(scope, layer, time, hidden, step(fed, time))
            bottom = hidden if layer == 0 else bottom
        outputs.append(hidden)
    return outputs


def _deepened(scope: str, layer: int, time: int, before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """The output `after` of a layer with the residual connection of its input `before`, where the layer has one."""
    if layer < RESIDUAL:
        return after
    with tf.name_scope(f"{scope}/step_{time}/"):
        return after + before


def _attention(scope: str, encoded: Sequence[tf.Tensor]) -> Callable[[tf.Tensor, int], tf.Tensor]:
    """A function (query `[batch, units]`, time step) -> context `[batch, units]`: scores are `v tanh(W query + U memory)`."""
    batch, units = encoded[0].shape
    asked, held = read(scope, "query_kernel", (units, units)), read(scope, "memory_kernel", (units, units))
    scorer = read(scope, "score_kernel", (units, 1))
    with tf.name_scope(f"{scope}/"):
        memory = tf.stack(encoded, axis=1)  # [batch, source, units]
        keys = tf.reshape(tf.matmul(tf.reshape(memory, (-1, units)), held), memory.shape)

    def attend(query: tf.Tensor, time: int) -> tf.Tensor:
        with tf.name_scope(f"{scope}/step_{time}/"):
            inside = tf.tanh(keys + tf.expand_dims(tf.matmul(query, asked), 1))
            scores = tf.matmul(tf.reshape(inside, (-1, units)), scorer)
            weights = tf.nn.softmax(tf.reshape(scores, (batch, len(encoded))))
            return tf.squeeze(tf.matmul(tf.expand_dims(weights, 1), memory), axis=1)

    return attend
