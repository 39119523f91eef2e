"""The devices of a graph's ops, as gnnplace placed them; written by `gnnplace export --to tensorflow`.

    with placed():  # in graph mode, around what builds the graph
        loss = build(x, y)

    @tf.function
    @placed()  # of a tf.function, the body
    def step(x, y): ...

An op of another name gets no device: TensorFlow chooses it. Variables that a tf.function captures exist before it is
traced; make each of them in `with tf.device(DEVICES[its op])`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

DEVICES: dict[str, str] = json.loads(Path(__file__).with_name("devices.json").read_text())


def device_function(op: Any) -> str:
    """The device of an op, by its name; "" if the placement has no such op."""
    return DEVICES.get(op.name, "")


@contextmanager
def placed() -> Iterator[None]:
    """A context, or a decorator, in which every op that is built gets its device."""
    with tf.compat.v1.device(device_function):
        yield
