"""The residual networks and Inception-V3 among the PyTorch workloads: training steps (batch norm in training mode, Adam) and inference."""

from __future__ import annotations

import torch

from datasets.build import resnet
from datasets.build.inception_v3 import SIZE, InceptionV3
from datasets.build.resnet import ResNet
from datasets.build.torch_vision import classifier
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch.step import TorchInference


def resnet_50_inference(batch: int = 32) -> TorchInference:
    """ResNet-50 classifies images."""
    return TorchInference(ResNet(resnet.RESNET_50), (torch.rand(batch, 3, 224, 224),))


def inception_v3_inference(batch: int = 32) -> TorchInference:
    """Inception-V3 classifies images; its auxiliary head has no part in that."""
    return TorchInference(InceptionV3(auxiliary=False), (torch.rand(batch, 3, SIZE, SIZE),))


WORKLOADS: dict[str, Workload] = {
    "resnet-18": Workload(
        lambda: classifier(ResNet(resnet.RESNET_18), 64), "resnet", "convolutional",
        "datasets/build/resnet.py, 11,689,512 parameters, 224 x 224 images; batch 64; Adam",
    ),
    "resnext-50": Workload(
        lambda: classifier(ResNet(resnet.RESNEXT_50), 32), "resnext", "convolutional",
        "datasets/build/resnet.py, 32 x 4d, 25,028,904 parameters, 224 x 224 images; batch 32; Adam",
    ),
    "wide-resnet-50": Workload(
        lambda: classifier(ResNet(resnet.WIDE_RESNET_50), 32), "wide-resnet", "convolutional",
        "datasets/build/resnet.py, twice as wide in bottlenecks, 68,883,240 parameters, 224 x 224 images; batch 32; Adam",
    ),
    "resnet-50-inference": Workload(
        resnet_50_inference, "resnet", "convolutional",
        "datasets/build/resnet.py, 25,557,032 parameters, 224 x 224 images; batch 32; forward", "inference",
    ),
    "inception-v3-inference": Workload(
        inception_v3_inference, "inception", "convolutional",
        f"datasets/build/inception_v3.py, 23,834,568 parameters, {SIZE} x {SIZE} images; batch 32; forward", "inference",
    ),
}  # fmt: skip
