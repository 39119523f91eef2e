"""Image classifiers of today among the PyTorch workloads, one training step each: batch norm in training mode, Adam."""

from __future__ import annotations

import torch
from torch import nn

from datasets.build import amoebanet, regnet
from datasets.build.convnext import ConvNeXt
from datasets.build.densenet import LAYERS_121, LAYERS_201, DenseNet
from datasets.build.efficientnet import efficientnet_b0
from datasets.build.losses import class_loss
from datasets.build.mobilenet import mobilenet_v2
from datasets.build.shufflenet_v2 import ShuffleNet
from datasets.build.squeezenet import SqueezeNet
from datasets.build.swin import Swin
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch.step import TorchStep

CLASSES = 1000


def classifier(module: nn.Module, batch: int, size: int = 224) -> TorchStep:
    """A classifier of square images of this size, with cross entropy over 1,000 classes."""
    return TorchStep(module, class_loss, (torch.rand(batch, 3, size, size), torch.randint(CLASSES, (batch,))))


WORKLOADS: dict[str, Workload] = {
    "densenet-121": Workload(
        lambda: classifier(DenseNet(LAYERS_121), 32), "densenet", "convolutional",
        "datasets/build/densenet.py, 7,978,856 parameters, 224 x 224 images; batch 32; Adam",
    ),
    "densenet-201": Workload(
        lambda: classifier(DenseNet(LAYERS_201), 32), "densenet", "convolutional",
        "datasets/build/densenet.py, 20,013,928 parameters, 224 x 224 images; batch 32; Adam",
    ),
    "mobilenet-v2": Workload(
        lambda: classifier(mobilenet_v2(), 64), "mobilenet", "convolutional",
        "datasets/build/mobilenet.py, 3,504,872 parameters, 224 x 224 images; batch 64; Adam",
    ),
    "efficientnet-b0": Workload(
        lambda: classifier(efficientnet_b0(), 64), "efficientnet", "convolutional",
        "datasets/build/efficientnet.py, 5,288,548 parameters, 224 x 224 images; batch 64; Adam",
    ),
    "convnext-tiny": Workload(
        lambda: classifier(ConvNeXt(), 64), "convnext", "convolutional",
        "datasets/build/convnext.py, 28,589,128 parameters, 224 x 224 images; batch 64; Adam",
    ),
    "amoebanet-a": Workload(
        lambda: classifier(amoebanet.AmoebaNet(amoebanet.FULL), 16, 331), "amoebanet", "cell",
        "datasets/build/amoebanet.py, 18 normal cells, 190 filters, 86.7 M parameters, 331 x 331 images; batch 16; Adam",
    ),
    "amoebanet-a-mobile": Workload(
        lambda: classifier(amoebanet.AmoebaNet(amoebanet.MOBILE), 32), "amoebanet", "cell",
        "datasets/build/amoebanet.py, 12 normal cells, 50 filters, 5.1 M parameters, 224 x 224 images; batch 32; Adam",
    ),
    "squeezenet": Workload(
        lambda: classifier(SqueezeNet(), 128), "squeezenet", "convolutional",
        "datasets/build/squeezenet.py, 1,248,424 parameters, 224 x 224 images; batch 128; Adam",
    ),
    "shufflenet-v2": Workload(
        lambda: classifier(ShuffleNet(), 128), "shufflenet", "convolutional",
        "datasets/build/shufflenet_v2.py, 2,278,604 parameters, 224 x 224 images; batch 128; Adam",
    ),
    "regnet-y-400mf": Workload(
        lambda: classifier(regnet.RegNet(regnet.SMALL), 128), "regnet", "convolutional",
        "datasets/build/regnet.py, 16 blocks, 4,344,144 parameters, 224 x 224 images; batch 128; Adam",
    ),
    "regnet-y-8gf": Workload(
        lambda: classifier(regnet.RegNet(regnet.LARGE), 64), "regnet", "convolutional",
        "datasets/build/regnet.py, 17 blocks, 39,180,068 parameters, 224 x 224 images; batch 64; Adam",
    ),
    "swin-t": Workload(
        lambda: classifier(Swin(), 64), "swin", "transformer",
        "datasets/build/swin.py, 28,288,354 parameters, windows of 7 x 7, 224 x 224 images; batch 64; Adam",
    ),
}  # fmt: skip
