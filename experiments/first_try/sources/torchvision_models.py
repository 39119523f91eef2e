"""Every model of torchvision, with random weights and small images."""

from __future__ import annotations

import re

import torch
from torch import nn

from experiments.first_try.cases import Inputs, Kind, TorchCase
from experiments.first_try.sources.torchvision_library import torchvision

torchvision()
from torchvision import models  # noqa: E402  # once its ops have signatures

KINDS = ("inference", "training")
BATCH, SIDE, FRAMES = 2, 64, 16
_SIDES = {r"(vit|swin_|maxvit)": 224, r"inception": 299, r"(deeplab|fcn|lraspp)": 96, r"quantized_inception": 299}
_DETECTORS = re.compile(r".*(rcnn|retinanet|fcos|ssd)")


def names() -> list[str]:
    """All names of `list_models`."""
    return models.list_models()


def case(name: str, kind: Kind) -> TorchCase:
    """A model with images, a video, two frames, or images and what is in them."""
    torch.manual_seed(0)
    few = {"weights_backbone": None} if _DETECTORS.match(name) or re.match(r"(deeplab|fcn|lraspp)", name) else {}
    module = models.get_model(name, weights=None, **few)
    return TorchCase(module, _inputs(name, module, kind))


def _inputs(name: str, module: nn.Module, kind: Kind) -> Inputs:
    if name.startswith("raft"):
        return torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)
    if _DETECTORS.match(name):
        images = [torch.rand(3, 96, 96)]
        boxes = {"boxes": torch.tensor([[8.0, 8.0, 64.0, 64.0]]), "labels": torch.tensor([1])}
        return (images, [boxes]) if kind == "training" else (images,)
    if re.match(r"(mc3|r3d|r2plus1d|s3d|swin3d)", name):
        return (torch.randn(BATCH, 3, FRAMES, 112, 112),)
    if name.startswith("mvit"):
        return (torch.randn(1, 3, FRAMES, 224, 224),)
    side = next((side for pattern, side in _SIDES.items() if re.match(pattern, name)), SIDE)
    return (torch.randn(BATCH, 3, side, side),)
