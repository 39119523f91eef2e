"""torchvision with a PyTorch without CUDA: the wheel's C++ ops don't load there, and importing it needs their signatures."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_library = torch.library.Library("torchvision", "FRAGMENT")


def torchvision() -> ModuleType:
    """The package; what calls one of its C++ ops raises an error."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            _library.define(name + _SIGNATURE)
        return importlib.import_module("torchvision")


def torchvision_if_installed() -> None:
    """Imports the package where there is one: transformers and timm look for it."""
    if importlib.util.find_spec("torchvision") is not None:
        torchvision()
