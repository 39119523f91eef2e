"""Networks that the corpus doesn't have, in each framework: what a user's FILE.py may hold."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gnnplace.frontends.torch.step import TorchInference, TorchStep


class Residual(nn.Module):
    """Two convolutions and what went in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


class Tagger(nn.Module):
    """An embedding, an LSTM both ways, a label for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm, self.labels = nn.Embedding(100, 16), nn.LSTM(16, 8, bidirectional=True), nn.Linear(16, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.labels(self.lstm(self.embedding(words))[0])


def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(module(x).flatten(0, -2), y.flatten())


def small_resnet() -> TorchStep:
    layers = [nn.Conv2d(3, 8, 3, padding=1), Residual(8), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)]
    return TorchStep(nn.Sequential(*layers), loss, (torch.randn(4, 3, 16, 16), torch.zeros(4, dtype=torch.long)))


def tagger() -> TorchStep:
    return TorchStep(Tagger(), loss, (torch.zeros(6, 4, dtype=torch.long), torch.zeros(6, 4, dtype=torch.long)), "sgd")


def encoder() -> TorchInference:
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        return TorchInference(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.empty(2, 7, 32),))


def described():
    return small_resnet().computation_graph("by itself")


def towers():
    from support import tensorflow_models

    return tensorflow_models.MODELS[0]


def cubes():
    import tensorflow as tf

    from gnnplace.frontends.tensorflow.function import TensorFlowFunction

    weight = tf.Variable(tf.zeros((8, 8)), name="weight")

    @tf.function
    def cube(x):
        return tf.matmul(tf.matmul(tf.matmul(x, weight), weight), weight)

    return TensorFlowFunction(tf.function(lambda x: tf.reduce_sum(cube(x))), (tf.TensorSpec((4, 8)),))


def separable(trained: bool = True):
    import keras
    import tensorflow as tf

    from gnnplace.frontends.tensorflow.keras import KerasModel

    layers = [keras.layers.SeparableConv2D(8, 3, activation="relu"), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((12, 12, 3)), *layers])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return KerasModel(model, tf.TensorSpec((4, 12, 12, 3)), tf.TensorSpec((4,), tf.int32) if trained else None)


def separable_inference():
    return separable(trained=False)


def bare_module():
    return nn.Linear(2, 2)


def bare_keras():
    return separable().model


def bare_function():
    return cubes().function


def number():
    return 7


def fails():
    return nn.Linear(2, 3)(torch.zeros(1, 5))


def no_graph():
    class Source:
        def computation_graph(self, name):
            return 7

    return Source()


def no_optimizer():
    return TorchStep(nn.Linear(2, 2), loss, (torch.zeros(1, 2), torch.zeros(1)), "rmsprob")


def decides():
    class Decides(nn.Linear):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    return TorchInference(Decides(2, 2), (torch.zeros(1, 2),))


def unfinished():
    raise NotImplementedError("not yet")


def ends():
    raise SystemExit(3)


def crashes():
    import os

    os.abort()


def parts() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return nn.Linear(2, 2), {"input": torch.zeros(3, 2)}


def parts_of_training() -> tuple[object, ...]:
    return nn.Linear(2, 2), lambda module, x: module(x).sum(), (torch.zeros(3, 2),), torch.optim.NAdam
