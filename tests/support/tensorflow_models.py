"""Small TensorFlow training steps of different make, each two streams of work or more."""

from functools import partial

import tensorflow as tf

from datasets.build import tensorflow_rnnlm
from gnnplace.frontends.tensorflow.step import TensorFlowStep

v1 = tf.compat.v1


def variable(name: str, *shape: int, start: float | None = None, trainable: bool = True) -> tf.Variable:
    initializer = v1.glorot_uniform_initializer() if start is None else v1.constant_initializer(start)
    return v1.get_variable(name, shape, use_resource=True, initializer=initializer, trainable=trainable)


def dense(x: tf.Tensor, name: str, units: int) -> tf.Tensor:
    return tf.nn.bias_add(tf.matmul(x, variable(f"{name}/kernel", x.shape[1], units)), variable(f"{name}/bias", units, start=0.0))


def minimized(loss: tf.Tensor, optimizer: v1.train.Optimizer) -> tuple[tf.Tensor, tf.Operation]:
    return loss, optimizer.minimize(loss)


def branches() -> tuple[tf.Tensor, tf.Operation]:
    """Two towers of dense layers whose distance is the loss; momentum."""
    x = v1.placeholder(tf.float32, (16, 12), "x")
    towers = [dense(tf.nn.relu(dense(x, f"{tower}/first", 24)), f"{tower}/second", 8) for tower in ("left", "right")]
    return minimized(tf.reduce_mean(tf.square(towers[0] - towers[1] - 1.0)), v1.train.MomentumOptimizer(0.05, 0.9))


def convolutions() -> tuple[tf.Tensor, tf.Operation]:
    """Convolution, batch normalisation with moving averages, pooling, cross entropy; RMSProp."""
    x, labels = v1.placeholder(tf.float32, (4, 12, 12, 3), "x"), v1.placeholder(tf.int32, (4,), "labels")
    x = tf.nn.conv2d(x, variable("conv/kernel", 3, 3, 3, 8), 1, "SAME")
    scale, offset = variable("norm/scale", 8, start=1.0), variable("norm/offset", 8, start=0.0)
    x, mean, _ = v1.nn.fused_batch_norm(x, scale, offset)
    moving = variable("norm/moving_mean", 8, start=0.0, trainable=False)
    average = moving.assign_sub((moving - mean) * 0.1)
    x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
    logits = dense(tf.reshape(x, (4, 6 * 6 * 8)), "logits", 5)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    with tf.control_dependencies([average]):
        return minimized(loss, v1.train.RMSPropOptimizer(0.01))


def attention() -> tuple[tf.Tensor, tf.Operation]:
    """Self-attention of two heads with dropout; Adam."""
    x = v1.placeholder(tf.float32, (2, 6, 8), "x")
    heads = []
    for head in range(2):
        query, key, value = (tf.einsum("bsi,io->bso", x, variable(f"head_{head}/{name}", 8, 4)) for name in ("query", "key", "value"))
        weights = tf.nn.dropout(tf.nn.softmax(tf.matmul(query, key, transpose_b=True)), 0.2)
        heads.append(tf.matmul(weights, value))
    return minimized(tf.reduce_mean(tf.square(tf.concat(heads, 2) - x)), v1.train.AdamOptimizer(0.01))


def embedding() -> tuple[tf.Tensor, tf.Operation]:
    """Two tables of which a step reads and updates a few rows; Adagrad on rows."""
    users, items = (v1.placeholder(tf.int32, (8,), name) for name in ("users", "items"))
    tables = [variable(name, 40, 6) for name in ("user_table", "item_table")]
    slots = [variable(f"{name}_sums", 40, 6, start=0.1, trainable=False) for name in ("user", "item")]
    rows = [tf.nn.embedding_lookup(table, ids) for table, ids in zip(tables, (users, items), strict=True)]
    loss = tf.reduce_mean(tf.square(tf.reduce_sum(rows[0] * rows[1], 1) - 1.0))
    updates = [
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=table.handle, accum=slot.handle, lr=0.1, epsilon=1e-7, grad=gradient.values, indices=gradient.indices
        )
        for table, slot, gradient in zip(tables, slots, v1.gradients(loss, tables), strict=True)
    ]
    return loss, tf.group(*updates)


MODELS = (
    TensorFlowStep("branches", branches),
    TensorFlowStep("convolutions", convolutions, below={"labels": 5}),
    TensorFlowStep(
        "lstm", partial(tensorflow_rnnlm.build, units=8, steps=4, batch=3, vocabulary=20), below={"input/tokens": 20, "input/targets": 20}
    ),
    TensorFlowStep("attention", attention),
    TensorFlowStep("embedding", embedding, below={"users": 40, "items": 40}),
)
