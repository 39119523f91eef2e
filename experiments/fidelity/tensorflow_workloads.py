"""TensorFlow training steps of 50 to 300 ms on one core: the corpus' recurrent networks at a reduced size, and six of branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf

from datasets.build import tensorflow_nmt, tensorflow_rnnlm
from gnnplace.frontends.tensorflow.step import TensorFlowStep

v1 = tf.compat.v1

ROWS = 14  # of 96 positions


def rnnlm() -> TensorFlowStep:
    """Two LSTM layers of 384 over ten steps."""
    build = partial(tensorflow_rnnlm.build, units=384, steps=10, batch=80, vocabulary=2000)
    return TensorFlowStep("rnnlm", build, tensorflow_rnnlm.blocks(), {"input/tokens": 2000, "input/targets": 2000})


def nmt() -> TensorFlowStep:
    """Encoder and decoder of two LSTM layers of 256 with attention, eight steps each."""
    build = partial(tensorflow_nmt.build, units=256, steps=8, batch=80, vocabulary=2000)
    below = {f"input/{name}": 2000 for name in ("source", "inputs", "targets")}
    return TensorFlowStep("nmt", build, tensorflow_nmt.blocks(), below)


def towers() -> TensorFlowStep:
    """Two towers of four dense layers whose distance is the loss; momentum."""
    return _step("towers", _towers)


def experts() -> TensorFlowStep:
    """Two layers of six dense experts each, weighed by a gate; Adam."""
    return _step("experts", _experts)


def branches() -> TensorFlowStep:
    """Three blocks of four branches of convolutions (Szegedy et al. 2015); momentum."""
    return _step("branches", _branches)


def attention() -> TensorFlowStep:
    """Three layers of self-attention of four heads, each head its own ops; Adam."""
    return _step("attention", _attention)


def deep_and_cross() -> TensorFlowStep:
    """Three cross layers beside three dense ones (Wang et al. 2021); Adam."""
    return _step("deep_and_cross", _deep_and_cross)


def clip() -> TensorFlowStep:
    """A tower of convolutions and one of self-attention whose pairs are told apart (Radford et al. 2021); momentum."""
    return _step("clip", _clip)


def _step(name: str, loss: Callable[[], tuple[tf.Tensor, v1.train.Optimizer]]) -> TensorFlowStep:
    def build() -> tuple[tf.Tensor, tf.Operation]:
        value, optimizer = loss()
        return value, optimizer.minimize(value)

    return TensorFlowStep(name, build)


def _dense(x: tf.Tensor, name: str, units: int) -> tf.Tensor:
    with tf.name_scope(f"{name}/"):
        kernel = _variable(f"{name}/kernel", int(x.shape[-1]), units)
        return tf.matmul(x, kernel)


def _variable(name: str, *shape: int) -> tf.Variable:
    return v1.get_variable(name, shape, use_resource=True, initializer=v1.glorot_uniform_initializer())


def _towers() -> tuple[tf.Tensor, v1.train.Optimizer]:
    towers = []
    for tower in ("left", "right"):
        x = v1.placeholder(tf.float32, (896, 768), f"input/{tower}")
        for layer in range(4):
            x = tf.nn.relu(_dense(x, f"{tower}_{layer}", 768))
        towers.append(x)
    return tf.reduce_mean(tf.square(towers[0] - towers[1] - 1.0)), v1.train.MomentumOptimizer(0.01, 0.9)


def _experts() -> tuple[tf.Tensor, v1.train.Optimizer]:
    x = v1.placeholder(tf.float32, (512, 384), "input/x")
    for layer in range(2):
        weights = tf.unstack(tf.nn.softmax(_dense(x, f"gate_{layer}", 6)), axis=1)
        outputs = [_dense(tf.nn.relu(_dense(x, f"expert_{layer}_{k}/in", 768)), f"expert_{layer}_{k}/out", 384) for k in range(6)]
        x = tf.add_n([weight[:, None] * output for weight, output in zip(weights, outputs, strict=True)])
    return tf.reduce_mean(tf.square(x - 1.0)), v1.train.AdamOptimizer(1e-3)


def _branches() -> tuple[tf.Tensor, v1.train.Optimizer]:
    x = v1.placeholder(tf.float32, (36, 28, 28, 64), "input/images")
    for block in range(3):
        parts = []
        for branch, (window, width) in enumerate(((1, 16), (3, 16), (3, 16), (5, 16))):
            with tf.name_scope(f"block_{block}/branch_{branch}/"):
                narrow = tf.nn.relu(tf.nn.conv2d(x, _variable(f"narrow_{block}_{branch}", 1, 1, 64, 32), 1, "SAME"))
                parts.append(tf.nn.relu(tf.nn.conv2d(narrow, _variable(f"wide_{block}_{branch}", window, window, 32, width), 1, "SAME")))
        x = tf.concat(parts, axis=3)
    return tf.reduce_mean(tf.square(x - 1.0)), v1.train.MomentumOptimizer(0.01, 0.9)


def _transformed(x: tf.Tensor, name: str, rows: int, length: int) -> tf.Tensor:
    heads = []
    for head in range(4):
        query, key, value = (tf.reshape(_dense(x, f"{name}/head_{head}/{part}", 64), (rows, length, 64)) for part in "qkv")
        heads.append(tf.matmul(tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / 8.0), value))
    x += _dense(tf.reshape(tf.concat(heads, axis=2), (rows * length, 256)), f"{name}/out", 256)
    return x + _dense(tf.nn.relu(_dense(x, f"{name}/up", 1024)), f"{name}/down", 256)


def _attention() -> tuple[tf.Tensor, v1.train.Optimizer]:
    x = v1.placeholder(tf.float32, (ROWS * 96, 256), "input/x")
    for layer in range(3):
        x = _transformed(x, f"layer_{layer}", ROWS, 96)
    return tf.reduce_mean(tf.square(x - 1.0)), v1.train.AdamOptimizer(1e-3)


def _deep_and_cross() -> tuple[tf.Tensor, v1.train.Optimizer]:
    first = crossed = deep = v1.placeholder(tf.float32, (640, 512), "input/x")
    for layer, units in enumerate((1024, 1024, 512)):
        crossed += first * _dense(crossed, f"cross_{layer}", 512)
        deep = tf.nn.relu(_dense(deep, f"deep_{layer}", units))
    logits = _dense(tf.concat([crossed, deep], axis=1), "logits", 1)
    return tf.reduce_mean(tf.square(logits - 1.0)), v1.train.AdamOptimizer(1e-3)


def _clip() -> tuple[tf.Tensor, v1.train.Optimizer]:
    pairs, length = 32, 64
    image, text = (
        v1.placeholder(tf.float32, (pairs, 32, 32, 32), "input/images"),
        v1.placeholder(tf.float32, (pairs * length, 256), "input/x"),
    )
    for layer, stride in enumerate((1, 2, 2)):
        with tf.name_scope(f"image_{layer}/"):
            width = int(image.shape[-1])
            image = tf.nn.relu(tf.nn.conv2d(image, _variable(f"image_{layer}/window", 3, 3, width, 2 * width), stride, "SAME"))
    text = tf.reshape(_transformed(text, "text", pairs, length), (pairs, length, 256))
    ends = [_dense(tf.reduce_mean(image, axis=(1, 2)), "image/end", 128), _dense(tf.reduce_mean(text, axis=1), "text/end", 128)]
    logits = tf.matmul(*ends, transpose_b=True)
    ways = [
        tf.nn.softmax_cross_entropy_with_logits(tf.constant(np.eye(pairs, dtype=np.float32)), each)
        for each in (logits, tf.transpose(logits))
    ]
    return tf.reduce_mean(tf.add_n(ways)), v1.train.MomentumOptimizer(0.01, 0.9)
