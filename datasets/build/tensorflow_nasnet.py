"""NASNet-A for mobile devices (4 @ 1056), one training step on 224 x 224 x 3 images (Zoph et al., 2018); RMSProp.

Two reduction cells, then three times four normal cells with a reduction cell between them; each cell takes the outputs of the two before
it. A separable convolution is applied twice, each time after a ReLU and before a batch norm (training mode, moving averages updated by
the step), NHWC. Rate 0.04, decay and momentum 0.9, epsilon 1. No auxiliary head, no path dropout, no weight decay.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from datasets.build.tensorflow_convolution import batch_norm, convolution, head, rmsprop
from datasets.build.tensorflow_lstm import read

v1 = tf.compat.v1

STEM, FILTERS = 32, 44
EPSILON, DECAY = 1e-3, 0.9997

# A combination adds up two layers of the cell: "5x5 h" is a separable convolution of h, "p" is p itself, "/2" a stride. h is what comes
# from the cell before (projected), p from the one before that, a number an earlier combination.
NORMAL = (("5x5 h", "3x3 p"), ("5x5 p", "3x3 p"), ("avg h", "p"), ("avg p", "avg p"), ("3x3 h", "h"))
NORMAL_OUTPUTS = ("p", "0", "1", "2", "3", "4")
REDUCTION = (("5x5/2 h", "7x7/2 p"), ("max/2 h", "7x7/2 p"), ("avg/2 h", "5x5/2 p"), ("1", "avg 0"), ("3x3 0", "max/2 h"))
REDUCTION_OUTPUTS = ("1", "2", "3", "4")


def build(batch: int = 32, size: int = 224, classes: int = 1000, repeated: int = 4) -> tuple[tf.Tensor, tf.Operation]:
    """The loss and the train op, in the default graph."""
    images = v1.placeholder(tf.float32, (batch, size, size, 3), "input/images")
    labels = v1.placeholder(tf.int32, (batch,), "input/labels")
    x = before = convolution("stem", images, STEM, 3, 2, EPSILON, DECAY, "VALID")
    for scope, filters, reduces in _cells(repeated):
        x, before = _cell(scope, x, before, filters, reduces), x
    loss = head("logits", _relu("logits", x), labels, classes)
    return loss, rmsprop(loss, rate=0.04)


def blocks(repeated: int = 4) -> dict[str, int]:
    """Blocks along the depth: the stem, the cells, the logits."""
    scopes = ["stem", *(scope for scope, _, _ in _cells(repeated)), "logits"]
    return {"input": 0} | {scope: block for block, scope in enumerate(scopes)}


def _cells(repeated: int) -> list[tuple[str, int, bool]]:
    """Scope, filters, and whether it halves the resolution, of each cell."""
    cells = [(FILTERS // 4, True), (FILTERS // 2, True)]
    for stage in range(3):
        cells += [(FILTERS * 2**stage, True)] * (stage > 0) + [(FILTERS * 2**stage, False)] * repeated
    return [(f"cell_{i}", filters, reduces) for i, (filters, reduces) in enumerate(cells)]


def _cell(scope: str, x: tf.Tensor, before: tf.Tensor, filters: int, reduces: bool) -> tf.Tensor:
    parts = {"p": _fitted(f"{scope}/p", before, x, filters), "h": _projected(f"{scope}/h", x, filters)}
    for i, sides in enumerate(REDUCTION if reduces else NORMAL):
        terms = [_layer(f"{scope}/{i}/{side}", layer, parts) for side, layer in zip(("left", "right"), sides, strict=True)]
        with tf.name_scope(f"{scope}/{i}/"):
            parts[str(i)] = terms[0] + terms[1]
    with tf.name_scope(f"{scope}/"):
        return tf.concat([parts[name] for name in (REDUCTION_OUTPUTS if reduces else NORMAL_OUTPUTS)], axis=3)


def _layer(scope: str, layer: str, parts: Mapping[str, tf.Tensor]) -> tf.Tensor:
    *kinds, name = layer.split()
    if not kinds:
        return parts[name]
    kind, stride = kinds[0].removesuffix("/2"), 2 if kinds[0].endswith("/2") else 1
    if kind in ("max", "avg"):
        pool = tf.nn.max_pool2d if kind == "max" else tf.nn.avg_pool2d
        with tf.name_scope(f"{scope}/"):
            return pool(parts[name], 3, stride, "SAME")
    once = _separable(f"{scope}/0", parts[name], int(kind[0]), stride, parts["h"].shape[3])
    return _separable(f"{scope}/1", once, int(kind[0]), 1, once.shape[3])


def _separable(scope: str, x: tf.Tensor, window: int, stride: int, filters: int) -> tf.Tensor:
    kernel = read(scope, "depthwise", (window, window, x.shape[3], 1))
    with tf.name_scope(f"{scope}/"):
        x = tf.nn.depthwise_conv2d(tf.nn.relu(x), kernel, (1, stride, stride, 1), "SAME")
    return convolution(scope, x, filters, 1, 1, EPSILON, DECAY)


def _fitted(scope: str, before: tf.Tensor, x: tf.Tensor, filters: int) -> tf.Tensor:
    """The output before the last, in the resolution of the last and with the filters of the cell."""
    if before.shape[1] != x.shape[1]:
        return _halved(scope, before, filters)
    return before if before is x or before.shape[3] == filters else _projected(scope, before, filters)


def _halved(scope: str, x: tf.Tensor, filters: int) -> tf.Tensor:
    """Every other position, and every other one shifted by one, each projected to half of the filters."""
    x = _relu(scope, x)
    with tf.name_scope(f"{scope}/"):
        shifted = tf.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))[:, 1:, 1:, :]
    kernels = [read(scope, name, (1, 1, x.shape[3], filters // 2)) for name in ("kernel_0", "kernel_1")]
    scale, offset = read(scope, "gamma", (filters,)), read(scope, "beta", (filters,))
    with tf.name_scope(f"{scope}/"):
        halves = [tf.nn.conv2d(_every_other(grid), kernel, 1, "SAME") for grid, kernel in zip((x, shifted), kernels, strict=True)]
        joined = tf.concat(halves, axis=3)
    return batch_norm(scope, joined, scale, offset, EPSILON, DECAY)


def _every_other(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.avg_pool2d(x, 1, 2, "VALID")


def _projected(scope: str, x: tf.Tensor, filters: int) -> tf.Tensor:
    return convolution(scope, _relu(scope, x), filters, 1, 1, EPSILON, DECAY)


def _relu(scope: str, x: tf.Tensor) -> tf.Tensor:
    with tf.name_scope(f"{scope}/"):
        return tf.nn.relu(x)
