"""PyTorch workloads that say something of every pixel or place of an image: segmentation and detection.

The segmentation U-Net is of the lineage of diffusion models, whose U-Net descends from it; the others build on ResNet-50.
"""

from __future__ import annotations

import torch

from datasets.build import deeplab_v3, retinanet
from datasets.build import unet_segmentation as unet
from datasets.build.losses import class_loss
from datasets.build.torch_workload import Workload
from gnnplace.frontends.torch.step import TorchStep


def segmented_scenes(batch: int = 16, size: int = deeplab_v3.CROP) -> TorchStep:
    """DeepLabv3 names the class of each pixel of a photograph."""
    inputs = (torch.rand(batch, 3, size, size), torch.randint(deeplab_v3.CLASSES, (batch, size, size)))
    return TorchStep(deeplab_v3.DeepLab(), class_loss, inputs)


def segmented_cells(batch: int = 1) -> TorchStep:
    """The U-Net tells cells from what is between them; the paper's batch is a single large image."""
    classes = torch.randint(unet.CLASSES, (batch, unet.OUTPUT, unet.OUTPUT))
    inputs = (torch.rand(batch, 1, unet.IMAGE, unet.IMAGE), classes, torch.rand(batch, unet.OUTPUT, unet.OUTPUT))
    return TorchStep(unet.UNet(), unet.weighted_loss, inputs)


def detector(batch: int = 2, height: int = 800, width: int = 1280, classes: int = 80) -> TorchStep:
    """RetinaNet finds objects; two images are one GPU's part of the paper's batch of 16."""
    boxes = retinanet.anchors(height, width)
    targets = (torch.rand(batch, boxes, classes), torch.rand(batch, boxes, 4), *torch.rand(2, batch, boxes).unbind())
    return TorchStep(retinanet.RetinaNet(classes), retinanet.loss, (torch.rand(batch, 3, height, width), *targets))


WORKLOADS: dict[str, Workload] = {
    "deeplab-v3": Workload(
        segmented_scenes, "deeplab", "convolutional",
        "datasets/build/deeplab_v3.py, ResNet-50, output stride 16, 39.6 M parameters, 513 x 513 images; batch 16; Adam",
    ),
    "unet-segmentation": Workload(
        segmented_cells, "unet-segmentation", "diffusion",
        "datasets/build/unet_segmentation.py, 31,030,658 parameters, 572 x 572 images; batch 1; Adam",
    ),
    "retinanet": Workload(
        detector, "retinanet", "convolutional",
        "datasets/build/retinanet.py, ResNet-50 and a feature pyramid, 37.9 M parameters, 800 x 1280 images; batch 2; Adam",
    ),
}  # fmt: skip
