"""What convolutional networks in TensorFlow share: convolutions with batch norm in training mode, a head of classes, updates with momentum.

Promises: moving averages are updated by the step, and slots stand with their variable.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from datasets.build.tensorflow_adam import slot
from datasets.build.tensorflow_lstm import read, variable

v1 = tf.compat.v1


def batch_norm(scope: str, x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float, decay: float) -> tf.Tensor:
    """`x`, normalised by the statistics of its batch, which the moving averages of `scope` follow with `decay`."""
    with tf.name_scope(f"{scope}/"):
        normal = tf.raw_ops.FusedBatchNormV3(x=x, scale=scale, offset=offset, mean=[], variance=[], epsilon=epsilon, is_training=True)
    _move(scope, "moving_mean", normal.batch_mean, decay)
    _move(scope, "moving_variance", normal.batch_variance, decay)
    return normal.y


def convolution(
    scope: str, x: tf.Tensor, filters: int, window: int, stride: int, epsilon: float, decay: float, padding: str = "SAME"
) -> tf.Tensor:
    """A convolution without bias, and batch norm with a trained scale and offset."""
    kernel = read(scope, "kernel", (window, window, x.shape[3], filters))
    scale, offset = read(scope, "gamma", (filters,)), read(scope, "beta", (filters,))
    with tf.name_scope(f"{scope}/"):
        y = tf.nn.conv2d(x, kernel, stride, padding)
    return batch_norm(scope, y, scale, offset, epsilon, decay)


def head(scope: str, x: tf.Tensor, labels: tf.Tensor, classes: int) -> tf.Tensor:
    """The mean cross entropy of a dense layer over the spatial mean."""
    kernel, bias = read(scope, "kernel", (x.shape[3], classes)), read(scope, "bias", (classes,))
    with tf.name_scope(f"{scope}/"):
        logits = tf.nn.bias_add(tf.matmul(tf.reduce_mean(x, axis=(1, 2)), kernel), bias)
        return tf.reduce_mean(tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels).loss)


def rmsprop(loss: tf.Tensor, rate: float) -> tf.Operation:
    """The op that updates all trained variables (decay and momentum 0.9, epsilon 1) and all moving averages."""

    def update(weight: tf.Variable, gradient: tf.Tensor) -> tf.Operation:
        squares, speed = slot(weight, "ms"), slot(weight, "mom")
        return tf.raw_ops.ResourceApplyRMSProp(
            var=weight.handle, ms=squares.handle, mom=speed.handle, lr=rate, rho=0.9, momentum=0.9, epsilon=1.0, grad=gradient
        )

    return _minimize(loss, "rmsprop", update)


def momentum(loss: tf.Tensor, rate: float) -> tf.Operation:
    """The op that updates all trained variables (momentum 0.9) and all moving averages."""

    def update(weight: tf.Variable, gradient: tf.Tensor) -> tf.Operation:
        speed = slot(weight, "mom")
        return tf.raw_ops.ResourceApplyMomentum(var=weight.handle, accum=speed.handle, lr=rate, grad=gradient, momentum=0.9)

    return _minimize(loss, "momentum", update)


def _minimize(loss: tf.Tensor, scope: str, update: Callable[[tf.Variable, tf.Tensor], tf.Operation]) -> tf.Operation:
    variables = v1.trainable_variables()
    gradients = v1.gradients(loss, variables)
    updates = list(v1.get_collection(v1.GraphKeys.UPDATE_OPS))
    with tf.name_scope(f"{scope}/"):
        updates += [update(weight, gradient) for weight, gradient in zip(variables, gradients, strict=True)]
    return tf.group(*updates, name="train")


def _move(scope: str, name: str, batch: tf.Tensor, decay: float) -> None:
    """Adds to the graph the update of a moving average."""
    average = variable(f"{scope}/{name}", batch.shape, trainable=False)
    with tf.name_scope(f"{scope}/"):
        step = (average.value() - batch) * (1 - decay)
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, tf.raw_ops.AssignSubVariableOp(resource=average.handle, value=step))
