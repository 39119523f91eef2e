"""Networks of keras.applications, without their weights: as published, with Keras' own layers and gradients.

- Xception (Chollet, 2017): 22,855,952 trained parameters, the figure of the paper's table 3; 299 x 299 images; SGD with momentum as there.
- Inception-ResNet-v2 (Szegedy et al., 2017): 55.8 million trained parameters; 299 x 299; RMSProp as there (decay 0.9, epsilon 1).
- NASNet-A 6 @ 4032 (Zoph et al., 2018; "large"): 88.9 million parameters, the paper's table 2; 331 x 331.
- EfficientNetV2-S (Tan and Le, 2021): 21.5 million trained parameters (the paper says 22 million); 384 x 384.
- MobileNetV3-Large (Howard et al., 2019): 5.5 million trained parameters (the paper says 5.4 million); 224 x 224.

A block is a unit of the paper's figure (a module, a cell, an inverted bottleneck), found by the names of Keras' layers; a layer
without such a name belongs to the block before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import keras
import tensorflow as tf

from gnnplace.frontends.tensorflow.keras import KerasModel, path


@dataclass(frozen=True)
class Workload:
    """A network, the side of its images, what names its blocks, the batch, the optimiser if it is trained, its place in the corpus."""

    network: Callable[[], keras.Model]
    size: int
    block: str
    batch: int
    optimizer: Callable[[], keras.Optimizer] | None
    family: str
    lineage: str
    what: str

    @property
    def mode(self) -> str:
        """Of the graph."""
        return "inference" if self.optimizer is None else "training"

    @property
    def source(self) -> str:
        """Where the graph comes from, in words."""
        return f"keras.applications, {self.what}, {self.size} x {self.size} x 3; batch {self.batch}"


def _rmsprop() -> keras.Optimizer:
    return keras.optimizers.RMSprop(0.045, rho=0.9, epsilon=1.0)


def _momentum() -> keras.Optimizer:
    return keras.optimizers.SGD(0.045, momentum=0.9)


_applications = keras.applications
WORKLOADS = {
    "xception": Workload(
        partial(_applications.Xception, weights=None), 299, r"(block\d+)_", 32, _momentum, "xception", "convolutional",
        "Xception; SGD with momentum",
    ),
    "inception-resnet-v2": Workload(
        partial(_applications.InceptionResNetV2, weights=None), 299, r"(mixed_\d\w|block\d+_\d+|conv_7b)", 32, _rmsprop,
        "inception-resnet", "convolutional", "Inception-ResNet-v2; RMSProp",
    ),
    "nasnet-large-inference": Workload(
        partial(_applications.NASNetLarge, weights=None), 331, r"(?:normal|reduction|adjust)_.*?(stem_\d|reduce_\d+|\d+)$", 8, None,
        "nasnet", "cell", "NASNet-A 6 @ 4032",
    ),
    "efficientnet-v2-s-inference": Workload(
        partial(_applications.EfficientNetV2S, weights=None, include_preprocessing=False, input_shape=(384, 384, 3)), 384,
        r"(block\d[a-z])_", 8, None, "efficientnet", "convolutional", "EfficientNetV2-S",
    ),
    "mobilenet-v3-inference": Workload(
        partial(_applications.MobileNetV3Large, weights=None, include_preprocessing=False), 224, r"(expanded_conv(?:_\d+)?)_[a-z]", 8, None,
        "mobilenet", "convolutional", "MobileNetV3-Large",
    ),
}  # fmt: skip


def model(workload: Workload) -> keras.Model:
    """The network, in a session of its own, so that Keras counts the names of layers from the start."""
    keras.utils.clear_session()
    return workload.network()


def described(workload: Workload) -> KerasModel:
    """The network with its shapes, compiled where it is trained."""
    made = model(workload)
    images = tf.TensorSpec((workload.batch, workload.size, workload.size, 3))
    if workload.optimizer is None:
        return KerasModel(made, images, blocks=blocks(made, workload.block))
    made.compile(workload.optimizer(), keras.losses.SparseCategoricalCrossentropy())
    return KerasModel(made, images, tf.TensorSpec((workload.batch,), tf.int32), blocks(made, workload.block))


def blocks(made: keras.Model, name: str) -> dict[str, int]:
    """The block of each layer and operation by its path: how many names of blocks had come by then. The loss goes with the last."""
    seen: dict[str, int] = {}
    found = {}
    block = 0
    for part in made.operations:
        if match := re.search(name, part.name):
            block = seen.setdefault(match[1], len(seen) + 1)
        found[path(part)] = block
    return found | {"compile_loss": block}
