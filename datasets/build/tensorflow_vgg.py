"""VGG-16, one training step on 224 x 224 x 3 images (Simonyan and Zisserman, 2015, configuration D of table 1); SGD with momentum.

13 convolutions of 3 x 3 with bias and ReLU, a maximum over 2 x 2 behind each stage, and three dense layers: 138.4 million parameters
(table 2: 138 million). No batch norm, as published. Rate 0.01, momentum 0.9. No weight decay and no dropout of the dense layers,
which changes no product and no size.
"""

from __future__ import annotations

import tensorflow as tf

from datasets.build.tensorflow_convolution import momentum
from datasets.build.tensorflow_lstm import read

v1 = tf.compat.v1

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # filters and convolutions of each


def build(batch: int = 32, size: int = 224, dense: int = 4096, classes: int = 1000) -> tuple[tf.Tensor, tf.Operation]:
    """The loss and the train op, in the default graph."""
    x = v1.placeholder(tf.float32, (batch, size, size, 3), "input/images")
    labels = v1.placeholder(tf.int32, (batch,), "input/labels")
    for stage, (filters, convolutions) in enumerate(STAGES):
        for i in range(convolutions):
            x = _convolution(f"stage_{stage}/{i}", x, filters)
        with tf.name_scope(f"stage_{stage}/"):
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
    with tf.name_scope("dense_0/"):
        x = tf.reshape(x, (batch, -1))
    for i in range(2):
        x = _dense(f"dense_{i}", x, dense)
        with tf.name_scope(f"dense_{i}/"):
            x = tf.nn.relu(x)
    logits = _dense("logits", x, classes)
    with tf.name_scope("logits/"):
        loss = tf.reduce_mean(tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels).loss)
    return loss, momentum(loss, rate=0.01)


def blocks() -> dict[str, int]:
    """Blocks along the depth: the convolutions one by one, the dense layers, the logits."""
    scopes = [f"stage_{stage}/{i}" for stage, (_, convolutions) in enumerate(STAGES) for i in range(convolutions)]
    block = {scope: i for i, scope in enumerate([*scopes, "dense_0", "dense_1", "logits"])}
    pools = {f"stage_{stage}": block[f"stage_{stage}/{convolutions - 1}"] for stage, (_, convolutions) in enumerate(STAGES)}
    return {"input": 0} | block | pools


def _convolution(scope: str, x: tf.Tensor, filters: int) -> tf.Tensor:
    kernel, bias = read(scope, "kernel", (3, 3, x.shape[3], filters)), read(scope, "bias", (filters,))
    with tf.name_scope(f"{scope}/"):
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))


def _dense(scope: str, x: tf.Tensor, units: int) -> tf.Tensor:
    kernel, bias = read(scope, "kernel", (x.shape[1], units)), read(scope, "bias", (units,))
    with tf.name_scope(f"{scope}/"):
        return tf.nn.bias_add(tf.matmul(x, kernel), bias)
