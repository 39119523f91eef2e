"""Clipping of gradients before they update, as `torch.nn.utils` does it, gradient by gradient: each op stands by itself in the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def by_norm(gradients: Mapping[str, Tensor], most: float, at: Callable[[str | None], None]) -> dict[str, Tensor]:
    """The gradients, scaled down together where their common norm exceeds `most` (Pascanu et al. 2013, algorithm 1).

    What serves a gradient is made after `at(name)`, what serves all of them after `at(None)`. The sums need every gradient: the first
    update waits for the last of them.
    """
    norms = []
    for name, gradient in gradients.items():
        at(name)
        norms.append(torch.linalg.vector_norm(gradient, 2.0))
    at(None)
    factor = torch.clamp(most / (torch.linalg.vector_norm(torch.stack(norms), 2.0) + 1e-6), max=1.0)
    scaled = {}
    for name, gradient in gradients.items():
        at(name)
        scaled[name] = gradient * factor
    return scaled


def by_value(gradients: Mapping[str, Tensor], most: float, at: Callable[[str | None], None]) -> dict[str, Tensor]:
    """The gradients, each of their elements brought between `-most` and `most`."""
    clamped = {}
    for name, gradient in gradients.items():
        at(name)
        clamped[name] = gradient.clamp(-most, most)
    return clamped
