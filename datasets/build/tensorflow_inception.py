"""Inception-V3, one training step on 299 x 299 x 3 images (Szegedy et al., 2016), with its auxiliary head; RMSProp as in that paper.

94 + 2 convolutions without bias, each with batch norm in training mode (no scale; moving averages updated by the step) and ReLU, NHWC.
Rate 0.045, decay and momentum 0.9, epsilon 1; the auxiliary loss counts 0.4. No weight decay, no label smoothing, no dropout.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from datasets.build.inception_layers import AUXILIARY, MIXED, STEM
from datasets.build.tensorflow_convolution import batch_norm, head, rmsprop
from datasets.build.tensorflow_lstm import read

v1 = tf.compat.v1


def build(batch: int = 32, size: int = 299, classes: int = 1000) -> tuple[tf.Tensor, tf.Operation]:
    """The loss and the train op, in the default graph."""
    images = v1.placeholder(tf.float32, (batch, size, size, 3), "input/images")
    labels = v1.placeholder(tf.int32, (batch,), "input/labels")
    x = _branch("stem", images, STEM)
    losses = []
    for module, branches in enumerate(MIXED):
        parts = [_branch(f"mixed_{module}/branch_{i}", x, layers) for i, layers in enumerate(branches)]
        with tf.name_scope(f"mixed_{module}/"):
            x = tf.concat(parts, axis=3)
        if module == AUXILIARY:
            losses.append(_auxiliary(x, labels, classes))
    losses.append(head("logits", x, labels, classes))
    with tf.name_scope("logits/"):
        loss = 0.4 * losses[0] + losses[1]
    return loss, rmsprop(loss, rate=0.045)


def blocks() -> dict[str, int]:
    """Blocks along the depth: the stem, the mixed modules (the auxiliary head with the one that feeds it), the logits."""
    mixed = {f"mixed_{module}": 1 + module for module in range(len(MIXED))}
    return {"input": 0, "stem": 0, "auxiliary": 1 + AUXILIARY, "logits": 1 + len(MIXED)} | mixed


def _branch(scope: str, x: tf.Tensor, layers: Sequence[str]) -> tf.Tensor:
    for i, layer in enumerate(layers):
        x = _layer(f"{scope}/{i}", x, layer)
    return x


def _layer(scope: str, x: tf.Tensor, layer: str) -> tf.Tensor:
    if " | " in layer:
        sides = [_layer(f"{scope}/{i}", x, side) for i, side in enumerate(layer.split(" | "))]
        with tf.name_scope(f"{scope}/"):
            return tf.concat(sides, axis=3)
    stride = 2 if layer.endswith("/2") else 1
    padding = "VALID" if stride == 2 or layer.endswith("valid") else "SAME"
    if layer.startswith(("max", "avg")):
        pool = tf.nn.max_pool2d if layer.startswith("max") else tf.nn.avg_pool2d
        with tf.name_scope(f"{scope}/"):
            return pool(x, 3, stride, padding)
    filters, window = layer.split()[:2]
    height, width = map(int, window.removesuffix("/2").split("x"))
    return _convolution(scope, x, (height, width, x.shape[3], int(filters)), stride, padding)


def _convolution(scope: str, x: tf.Tensor, shape: Sequence[int], stride: int, padding: str) -> tf.Tensor:
    kernel, offset = read(scope, "kernel", shape), read(scope, "beta", shape[3:])
    with tf.name_scope(f"{scope}/"):
        y = tf.nn.conv2d(x, kernel, stride, padding)
        scale = tf.ones(shape[3:])
    y = batch_norm(scope, y, scale, offset, epsilon=1e-3, decay=0.9997)
    with tf.name_scope(f"{scope}/"):
        return tf.nn.relu(y)


def _auxiliary(x: tf.Tensor, labels: tf.Tensor, classes: int) -> tf.Tensor:
    with tf.name_scope("auxiliary/"):
        x = tf.nn.avg_pool2d(x, 5, 3, "VALID")
    x = _layer("auxiliary/0", x, "128 1x1")
    x = _convolution("auxiliary/1", x, (x.shape[1], x.shape[2], 128, 768), 1, "VALID")
    return head("auxiliary", x, labels, classes)
