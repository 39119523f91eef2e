"""TensorFlow training steps of 50 to 300 ms on one core: the corpus' recurrent networks at a reduced size, and four of branches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from datasets.build import tensorflow_nmt, tensorflow_rnnlm
from gnnplace.execution.tensorflow_spec import TensorFlowStep

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


def _attention() -> tuple[tf.Tensor, v1.train.Optimizer]:
    x = v1.placeholder(tf.float32, (ROWS * 96, 256), "input/x")
    for layer in range(3):
        heads = []
        for head in range(4):
            query, key, value = (tf.reshape(_dense(x, f"layer_{layer}/head_{head}/{part}", 64), (ROWS, 96, 64)) for part in "qkv")
            heads.append(tf.matmul(tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / 8.0), value))
        x += _dense(tf.reshape(tf.concat(heads, axis=2), (ROWS * 96, 256)), f"layer_{layer}/out", 256)
        x += _dense(tf.nn.relu(_dense(x, f"layer_{layer}/up", 1024)), f"layer_{layer}/down", 256)
    return tf.reduce_mean(tf.square(x - 1.0)), v1.train.AdamOptimizer(1e-3)
