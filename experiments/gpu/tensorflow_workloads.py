"""Small TensorFlow training steps for the checks."""

from __future__ import annotations

from functools import partial

import tensorflow as tf

from datasets.build import tensorflow_rnnlm
from gnnplace.frontends.tensorflow.step import TensorFlowStep

v1 = tf.compat.v1

NAMES = ("rnnlm", "two_towers")


def rnnlm() -> TensorFlowStep:
    """Two LSTM layers of 32 over four steps."""
    build = partial(tensorflow_rnnlm.build, units=32, steps=4, batch=8, vocabulary=100)
    return TensorFlowStep("rnnlm", build, tensorflow_rnnlm.blocks(), {"input/tokens": 100, "input/targets": 100})


def two_towers() -> TensorFlowStep:
    """Two chains of dense layers that meet in a product."""
    return TensorFlowStep("two_towers", _two_towers)


def _two_towers() -> tuple[tf.Tensor, tf.Operation]:
    x = v1.placeholder(tf.float32, (64, 128), "x")
    towers = []
    for tower in range(2):
        values = x
        for layer in range(3):
            kernel = v1.get_variable(f"tower_{tower}/{layer}", (128, 128), use_resource=True)
            values = tf.tanh(tf.matmul(values, kernel))
        towers.append(values)
    loss = tf.reduce_mean(tf.square(towers[0] * towers[1] - 1.0))
    return loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss)
