"""One Adam update of a TensorFlow graph: dense variables by the fused kernel, embeddings by the rows that the step used.

Promises: every variable and slot is a resource variable, slots stand with their variable, the scalar powers of beta are read once, and an
embedding's gradient stays sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

v1 = tf.compat.v1

RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8

AT_ONCE = tf.AggregationMethod.DEFAULT  # TensorFlow's own choice: one AddN once all terms are there
IN_PAIRS = tf.AggregationMethod.EXPERIMENTAL_TREE  # a running sum: more traffic, but each term is released when it is added


class Powers(NamedTuple):
    """The powers of beta up to this step (scalars) and the variables that hold them."""

    beta1: tf.Tensor
    beta2: tf.Tensor
    variables: tuple[tf.Variable, tf.Variable]


def minimize(loss: tf.Tensor, variables: Sequence[tf.Variable], sums: int = AT_ONCE) -> tf.Operation:
    """The op that computes the gradients of `loss` and updates `variables`; gradients of several uses are added `AT_ONCE` or `IN_PAIRS`."""
    gradients = v1.gradients(loss, list(variables), aggregation_method=sums)
    powers = _powers()
    with tf.name_scope("adam/"):
        updates = [_update(variable, gradient, powers) for variable, gradient in zip(variables, gradients, strict=True)]
        with tf.control_dependencies(updates):
            updates += [
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=power * beta)
                for variable, power, beta in zip(powers.variables, (powers.beta1, powers.beta2), (BETA1, BETA2), strict=True)
            ]
    return tf.group(*updates, name="train")


def slot(variable: tf.Variable, name: str) -> tf.Variable:
    """The optimiser slot `name` of a variable: as large, on its device, in its scope."""
    with v1.colocate_with(variable.op):
        return _state(f"{variable.op.name}_{name}", variable.shape, 0.0)


def _powers() -> Powers:
    with v1.variable_scope("adam"):
        variables = (_state("beta1_power", (), BETA1), _state("beta2_power", (), BETA2))
    with tf.name_scope("adam/"):
        return Powers(variables[0].value(), variables[1].value(), variables)


def _update(variable: tf.Variable, gradient: tf.Tensor | tf.IndexedSlices, powers: Powers) -> tf.Operation:
    first, second = slot(variable, "m"), slot(variable, "v")
    if isinstance(gradient, tf.IndexedSlices):
        return _update_rows((variable, first, second), gradient, powers)
    return tf.raw_ops.ResourceApplyAdam(
        var=variable.handle, m=first.handle, v=second.handle, beta1_power=powers.beta1, beta2_power=powers.beta2,
        lr=RATE, beta1=BETA1, beta2=BETA2, epsilon=EPSILON, grad=gradient, use_locking=False,
    )  # fmt: skip


def _update_rows(variables: Sequence[tf.Variable], gradient: tf.IndexedSlices, powers: Powers) -> tf.Operation:
    """Lazy Adam: only the rows that the step looked up. All occurrences of a row write the same value, that of their summed gradient."""
    rows = gradient.indices
    with tf.name_scope("rows"):
        occurrence = tf.unique(rows).idx
        summed = tf.gather(tf.math.unsorted_segment_sum(gradient.values, occurrence, rows.shape[0]), occurrence)
        weight, first, second = (tf.raw_ops.ResourceGather(resource=v.handle, indices=rows, dtype=v.dtype) for v in variables)
        first = first * BETA1 + summed * (1 - BETA1)
        second = second * BETA2 + tf.square(summed) * (1 - BETA2)
        rate = RATE * tf.sqrt(1 - powers.beta2) / (1 - powers.beta1)
        weight -= rate * first / (tf.sqrt(second) + EPSILON)
        writes = [
            tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=rows, updates=value)
            for variable, value in zip(variables, (weight, first, second), strict=True)
        ]
        return tf.group(*writes)


def _state(name: str, shape: Sequence[int], start: float) -> tf.Variable:
    return v1.get_variable(name, shape, use_resource=True, trainable=False, initializer=v1.constant_initializer(start))
