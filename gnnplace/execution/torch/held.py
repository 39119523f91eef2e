"""What a placed PyTorch step starts from, and what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from gnnplace.execution.torch.values import Node


class Held(NamedTuple):
    """What exists before the step: the value of each such node, the names of those that a step changes; and what is kept of a step.

    Devices have copies of the values and keep the loss, a scalar. With `results` they share the values, each on its device, and write
    the value of each such node to its place; random draws are those of the step of the number plus `draws`.
    """

    values: Mapping[Node, Tensor]
    names: Mapping[Node, str]
    loss: Node | None
    results: Mapping[Node, Tensor] | None = None
    draws: int = 0
