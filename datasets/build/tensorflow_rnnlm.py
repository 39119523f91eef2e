"""RNNLM: a language model of stacked LSTM layers, one training step (Zaremba et al., 2014; sizes of Mirhoseini et al., 2017).

2 layers of 2,048 (4 and 8 in Zhou et al., 2020, who state no sizes), unrolled 40 steps, batch 64, a softmax at each step, Adam. The
papers don't state the vocabulary; 10,000 is that of Penn Treebank, on which the model was published. No dropout, no clipping.
Weight gradients are added up in pairs as they appear: the 80 gradients of the kernels of 2 layers (134 MB each) don't fit a 12 GB
device at once (12.1 GB in all), on which the papers ran that model.
"""

from __future__ import annotations

import tensorflow as tf

from datasets.build.tensorflow_adam import IN_PAIRS, minimize
from datasets.build.tensorflow_lstm import embedding, lstm, softmax_losses


def build(layers: int = 2, units: int = 2048, steps: int = 40, batch: int = 64, vocabulary: int = 10_000) -> tuple[tf.Tensor, tf.Operation]:
    """The loss and the train op, in the default graph."""
    tokens = tf.compat.v1.placeholder(tf.int32, (steps, batch), "input/tokens")
    targets = tf.compat.v1.placeholder(tf.int32, (steps, batch), "input/targets")
    hidden = embedding("embedding", tokens, vocabulary, units)
    for layer in range(layers):
        step = lstm(f"lstm_{layer}", batch, units, units)
        hidden = [step(x, time) for time, x in enumerate(hidden)]
    loss = softmax_losses("softmax", hidden, targets, vocabulary)
    return loss, minimize(loss, tf.compat.v1.trainable_variables(), IN_PAIRS)


def blocks(layers: int = 2) -> dict[str, int]:
    """The LSTM layer with which an expert places each layer: the embedding with the first, the softmax with the last."""
    return {"input": 0, "embedding": 0, "softmax": layers - 1} | {f"lstm_{layer}": layer for layer in range(layers)}
