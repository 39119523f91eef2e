"""Losses that several workloads of the corpus have: `loss(module, *inputs)`, the last of the inputs what the module shall find."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def class_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    """Cross entropy of logits `[batch classes ...]` and classes `[batch ...]`."""
    *features, classes = inputs
    return functional.cross_entropy(module(*features), classes)


def token_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    """Cross entropy of logits `[... classes]` and classes `[...]`: of every token, or of every frame."""
    *features, classes = inputs
    return functional.cross_entropy(module(*features).flatten(0, -2), classes.flatten())


def binary_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    """Cross entropy of logits of yes or no and what is so, 0 or 1, of the same shape."""
    *features, labels = inputs
    return functional.binary_cross_entropy_with_logits(module(*features), labels)


def squared_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    """The mean of squared errors."""
    *features, values = inputs
    return functional.mse_loss(module(*features), values)


def own_loss(module: nn.Module, *inputs: Tensor) -> Tensor:
    """The module returns its loss itself, and finds what all inputs say."""
    loss: Tensor = module(*inputs)
    return loss
