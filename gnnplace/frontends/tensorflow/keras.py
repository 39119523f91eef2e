"""Reads a Keras model on TensorFlow as a graph: its inference, or the training step of a compiled model.

    graph = read_keras(model, tf.TensorSpec((32, 224, 224, 3)), tf.TensorSpec((32,), tf.int32), name="resnet")

A training step is the forward pass in training mode, the loss given to `compile` plus the model's own losses, the
gradient, and the optimiser's update; metrics are left out. Gradients of embeddings are dense, since Keras joins sparse
gradients by conditions on their values. Only the initial values of variables are computed, which Keras creates with the
model and the optimiser. The `layer` of an op is the path of its Keras layer (`model/block_1/conv`) with the scopes
inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import keras
import tensorflow as tf

from gnnplace.frontends.tensorflow.function import read_function
from gnnplace.graph import ComputationGraph


@dataclass(frozen=True)
class KerasModel:
    """A model and the specs of its inputs: its training step with `targets`, its inference without them.

    `blocks` is as in `read_step`.
    """

    model: keras.Model
    inputs: Any
    targets: Any = None
    blocks: Mapping[str, int] = field(default_factory=dict)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The step as a graph named `name`. Raises ValueError if it can't be captured."""
        return read_keras(self.model, self.inputs, self.targets, name=name, blocks=self.blocks)


def read_keras(
    model: keras.Model, inputs: Any, targets: Any = None, *, name: str, blocks: Mapping[str, int] | None = None
) -> ComputationGraph:
    """The graph of the model's inference or, with `targets`, of its training step, named `name`.

    `inputs` and `targets` have the structure that the model takes, with `tf.TensorSpec`s or anything with a full shape
    and a dtype as leaves. Raises ValueError if Keras does not run on TensorFlow, if a model to be trained is not
    compiled or overrides `train_step`, and as `read_function` does.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"model: Keras runs on {keras.backend.backend()}; set KERAS_BACKEND=tensorflow before it is imported"
        )
    specs = tf.nest.map_structure(_spec, inputs)
    if not model.built:
        model(tf.nest.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), specs))
    with _scopes(model):
        if targets is None:
            inference = tf.function(lambda x: model(x, training=False), autograph=False)
            return read_function(inference, specs, name=name, blocks=blocks)
        return read_function(_training(model), specs, tf.nest.map_structure(_spec, targets), name=name, blocks=blocks)


def _training(model: keras.Model) -> Callable[..., Any]:
    """One training step of the model as a function of its inputs and targets."""
    if not model.compiled:
        raise ValueError(
            "model: is not compiled, so its training step has no loss and no optimiser; call "
            "model.compile(optimizer, loss)"
        )
    if type(model).train_step is not keras.Model.train_step:
        advice = "write the step as a tf.function and return TensorFlowFunction(function, specs)"
        raise ValueError(f"model: {type(model).__name__} has a train_step of its own; {advice}")
    model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(x: Any, y: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True), training=True)
        gradients = [
            None if g is None else tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_weights)
        ]
        model.optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
        return loss

    return step


def _spec(value: Any) -> tf.TensorSpec:
    """The spec of an object with a shape and a dtype."""
    return value if isinstance(value, tf.TensorSpec) else tf.TensorSpec(tuple(value.shape), tf.as_dtype(value.dtype))


def path(part: Any) -> str:
    """The path of a layer; the name of an operation or of a layer without state."""
    return getattr(part, "path", None) or part.name


@contextmanager
def _scopes(model: keras.Model) -> Iterator[None]:
    """Within the context, each layer is called in the name scope of its path.

    Keras itself opens a scope twice a call, which would add numbers to the names.
    """
    parts = [part for layer in model._flatten_layers() for part in (layer, *getattr(layer, "operations", ()))]
    distinct = {id(part): part for part in parts if "call" not in vars(part)}.values()
    for part in distinct:
        object.__setattr__(part, "call", _scoped(part.call, f"{path(part)}/"))
    try:
        yield
    finally:
        for part in distinct:
            object.__delattr__(part, "call")


def _scoped(call: Callable[..., Any], scope: str) -> Callable[..., Any]:
    @wraps(call)
    def within(*arguments: Any, **keywords: Any) -> Any:
        with tf.name_scope(scope):
            return call(*arguments, **keywords)

    return within
