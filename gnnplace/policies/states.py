"""The constants of a problem beside the networks that read them: tensors in (nested) tuples, among other data."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from gnnplace.placement import Placement, Schedule
from gnnplace.units.units import Units, expand

Constants = TypeVar("Constants")


def beside(policy: nn.Module, constants: Constants) -> Constants:
    """The constants with every tensor on the device of the policy's parameters; the same object where all are there already."""
    return _moved(constants, next(policy.parameters()).device)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if not isinstance(value, tuple):
        return value
    parts = [_moved(part, device) for part in value]
    if all(there is here for there, here in zip(parts, value, strict=True)):
        return value
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def unit_placements(units: Units, device: Int[Tensor, "samples units"], schedule: Schedule) -> tuple[Placement, ...]:
    """Every op stands where its unit does."""
    devices = expand(units, device.cpu().numpy().astype(np.int32))
    return tuple(Placement(row, schedule) for row in devices)
