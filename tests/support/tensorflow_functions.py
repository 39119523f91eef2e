"""A training step as a tf.function, whose variables a caller may put on devices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from gnnplace.frontends.tensorflow.function import TensorFlowFunction

NAMES = ("first/kernel", "second/kernel")
SHAPES = ((16, 32), (32, 4))


def variables(where: Callable[[str], AbstractContextManager[Any]] = lambda op: nullcontext()) -> list[tf.Variable]:
    """The variables, each made within `where` of its op in the placed graph."""
    made = []
    for seed, (name, shape) in enumerate(zip(NAMES, SHAPES, strict=True)):
        with where(name):
            made.append(tf.Variable(tf.random.stateless_normal(shape, (3, seed)), name=name.partition("/")[2]))
    return made


def step(trained: list[tf.Variable]) -> Any:
    """One step of gradient descent, which returns the loss before it."""

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            with tf.name_scope("first"):
                hidden = tf.nn.relu(tf.matmul(x, trained[0]))
            with tf.name_scope("second"):
                loss = tf.reduce_mean(tf.square(tf.matmul(hidden, trained[1])))
        for variable, gradient in zip(trained, tape.gradient(loss, trained), strict=True):
            variable.assign_sub(0.001 * gradient)
        return loss

    return train


def placed() -> TensorFlowFunction:
    """The step as it is placed."""
    return TensorFlowFunction(step(variables()), (tf.TensorSpec((8, 16)),))
