"""ResNet-50 or -152, one training step on 224 x 224 x 3 images (He et al., 2016); SGD with momentum as in that paper.

53 or 155 convolutions without bias, each with batch norm in training mode (moving averages updated by the step), NHWC; the stride of a
stage is that of its first 1 x 1 convolution, as published. Rate 0.1, momentum 0.9. No weight decay.
"""

from __future__ import annotations

import tensorflow as tf

from datasets.build.tensorflow_convolution import convolution, head, momentum

v1 = tf.compat.v1

FILTERS = (64, 128, 256, 512)  # of the narrow layers of each stage
BOTTLENECKS = {50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}  # of each stage, by depth (table 1 of the paper)
WIDENING = 4


def build(depth: int = 50, batch: int = 32, size: int = 224, classes: int = 1000) -> tuple[tf.Tensor, tf.Operation]:
    """The loss and the train op, in the default graph."""
    images = v1.placeholder(tf.float32, (batch, size, size, 3), "input/images")
    labels = v1.placeholder(tf.int32, (batch,), "input/labels")
    x = _relu("stem", _convolution("stem", images, 64, 7, 2))
    with tf.name_scope("stem/"):
        x = tf.nn.max_pool2d(x, 3, 2, "SAME")
    for scope, filters, stride in _bottlenecks(depth):
        x = _bottleneck(scope, x, filters, stride)
    loss = head("logits", x, labels, classes)
    return loss, momentum(loss, rate=0.1)


def blocks(depth: int = 50) -> dict[str, int]:
    """Blocks along the depth: the stem, the bottlenecks, the logits."""
    scopes = ["stem", *(scope for scope, _, _ in _bottlenecks(depth)), "logits"]
    return {"input": 0} | {scope: block for block, scope in enumerate(scopes)}


def _bottlenecks(depth: int) -> list[tuple[str, int, int]]:
    """Scope, filters and stride of each."""
    return [
        (f"stage_{stage}/bottleneck_{i}", filters, 2 if stage > 0 and i == 0 else 1)
        for stage, (filters, count) in enumerate(zip(FILTERS, BOTTLENECKS[depth], strict=True))
        for i in range(count)
    ]


def _bottleneck(scope: str, x: tf.Tensor, filters: int, stride: int) -> tf.Tensor:
    """Narrow, convolve, widen, and add the input; where that has another shape, a projection of it."""
    wide = WIDENING * filters
    kept = x if x.shape[3] == wide else _convolution(f"{scope}/projection", x, wide, 1, stride)
    x = _relu(f"{scope}/0", _convolution(f"{scope}/0", x, filters, 1, stride))
    x = _relu(f"{scope}/1", _convolution(f"{scope}/1", x, filters, 3, 1))
    x = _convolution(f"{scope}/2", x, wide, 1, 1)
    with tf.name_scope(f"{scope}/"):
        return tf.nn.relu(x + kept)


def _convolution(scope: str, x: tf.Tensor, filters: int, window: int, stride: int) -> tf.Tensor:
    return convolution(scope, x, filters, window, stride, epsilon=1e-5, decay=0.9)


def _relu(scope: str, x: tf.Tensor) -> tf.Tensor:
    with tf.name_scope(f"{scope}/"):
        return tf.nn.relu(x)
